// BERT's tokenizer in Python, `transformers`' BertTokenizerLegacy: text to words (spec R-TOK-04, table set B). It
// follows the steps of bert.tokenization_bert_legacy in order: literal special tokens are cut out; control characters
// and U+FFFD are dropped; each CJK character becomes a word; split at white space; NFC; lower case, NFD without
// category Mn (Case::kLower only); split at punctuation. A plain ASCII stretch without white space is split by a faster
// path.
#pragma once

#include <memory>

#include "rf/text/tokenizer.h"
#include "splitters/splitter.h"

namespace rf::text {

// The special tokens are the non-empty names.
std::unique_ptr<Splitter> make_legacy_splitter(Case letter_case, const SpecialNames& names = {});

}  // namespace rf::text
