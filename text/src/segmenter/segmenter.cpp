// The segmenter: segmentation.h over the image of a dictionary.
#include "rf/text/segmenter.h"

#include "segmenter/dictionary_image.h"
#include "segmenter/segmentation.h"

namespace rf::text {

Segmenter::Segmenter(std::shared_ptr<const Dictionary> dictionary)
    : dictionary_(std::move(dictionary)), buffers_(std::make_unique<SegmentationBuffers>()) {}

Segmenter::~Segmenter() = default;
Segmenter::Segmenter(Segmenter&&) noexcept = default;
Segmenter& Segmenter::operator=(Segmenter&&) noexcept = default;

void Segmenter::cut(std::u32string_view text, std::vector<uint32_t>& ends) {
  segment(dictionary_->image(), text, *buffers_, ends);
}

bool Segmenter::may_part_after(char32_t c) { return run_flags(c) == 0 && c != U'\r'; }

}  // namespace rf::text
