// A sequence of normalizers of `tokenizers`, over characters with their sources. A character that a step adds gets the
// source of the character before it, as that library aligns them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rf/text/tokenizer.h"
#include "splitters/bert_normalizer.h"
#include "splitters/charsmap.h"
#include "splitters/expression.h"

namespace rf::text {

class NormalizerChain {
 public:
  // Throws the errors of Charsmap and Expression.
  explicit NormalizerChain(const std::vector<NormalizerStep>& steps);

  // In place, on the whole text between two added tokens.
  void normalize(std::vector<NormalizedChar>& chars) const;
  std::string normalize(std::string_view text) const;

 private:
  struct Step {
    NormalizerStep options;
    std::shared_ptr<const Charsmap> charsmap = {};
    std::shared_ptr<const Expression> expression = {};
  };
  std::vector<Step> steps_;
};

}  // namespace rf::text
