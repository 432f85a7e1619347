// Counting words and merging their bytes (rf/text/byte_pair_trainer.h).
#include "rf/text/byte_pair_trainer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "models/byte_alphabet.h"
#include "rf/io/error.h"
#include "rf/io/utf8.h"
#include "splitters/gpt2_splitter.h"
#include "vocabulary/pair_merger.h"

namespace rf::text {
namespace {

constexpr const char *kPadToken = "<pad>", *kEndToken = "</s>", *kUnknownToken = "<unk>";

// The letters of all bytes, in the order of their code points.
std::vector<std::string> byte_letters() {
  std::vector<std::string> letters;
  for (int byte = 0; byte < 256; ++byte) letters.push_back(letters_of(std::string(1, static_cast<char>(byte))));
  std::sort(letters.begin(), letters.end());
  return letters;
}

std::string valid_utf8(std::string_view text) {
  std::string valid;
  while (!text.empty()) {
    const Decoded decoded = decode_utf8(text);
    valid += decoded.valid ? text.substr(0, static_cast<size_t>(decoded.length)) : std::string_view("\xEF\xBF\xBD");
    text.remove_prefix(static_cast<size_t>(decoded.length));
  }
  return valid;
}

}  // namespace

BytePairTrainer::BytePairTrainer(BytePairTrainerOptions options) : options_(options) {
  if (options_.size < 1 || options_.min_frequency < 1) {
    fail("vocab", "size and min_frequency must be at least 1, got {} and {}", options_.size, options_.min_frequency);
  }
}

void BytePairTrainer::add(std::string_view given) {
  const std::string text = valid_utf8(given);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = next_gpt2_word(text, begin).end;
    ++word_counts_[text.substr(begin, end - begin)];
    begin = end;
  }
}

Tokenizer BytePairTrainer::train(const std::function<void(int64_t)>& tick) const {
  if (word_counts_.empty()) fail("vocab", "the texts must have at least one word, got none");
  std::vector<std::pair<std::string, int64_t>> words(word_counts_.begin(), word_counts_.end());
  std::sort(words.begin(), words.end());

  TokenList tokens;
  for (const char* special : {kPadToken, kEndToken, kUnknownToken}) tokens.add(special);
  for (const std::string& letter : byte_letters()) tokens.add(letter);
  if (tokens.size() > options_.size) {
    fail("vocab", "size must be at least {} for the special tokens and the bytes, got {}", tokens.size(),
         options_.size);
  }
  PairMerger merger(tokens, PairMerger::Pieces::kBytes);
  for (const auto& [word, count] : words) {
    std::vector<int32_t> ids;
    for (const char byte : word) ids.push_back(tokens.find(letters_of(std::string(1, byte))));
    if (ids.size() > 1) merger.add_word(std::move(ids), count);
  }
  merger.merge_until(options_.size, options_.min_frequency, tick);

  const SpecialNames names{
      .pad = kPadToken, .unk = kUnknownToken, .cls = "", .sep = "", .mask = "", .bos = "", .eos = kEndToken};
  Vocabulary vocabulary(tokens.release(), names);
  const int32_t end = vocabulary.special().eos;
  using Part = SequenceTemplate::Part;
  const SequenceTemplate ended{.single = {{Part::kFirst}, {Part::kSpecial, end}}, .pair = {}};
  TokenizerParts parts{.vocabulary = std::move(vocabulary), .options = {}, .added = {}, .merges = merger.take_merges()};
  parts.options.pipeline = Pipeline::kByteLevelBpe;
  parts.options.decoding.join = DecodingOptions::Join::kBytes;
  parts.sequence_template = ended;
  return Tokenizer(std::move(parts));
}

}  // namespace rf::text
