// How texts and special tokens are combined: "[CLS] A [SEP]", "[CLS] A [SEP] B [SEP]" and the forms of other models.
#pragma once

#include <cstdint>
#include <vector>

namespace rf::text {

struct SequenceTemplate {
  enum class Part : uint8_t { kFirst, kSecond, kSpecial };
  struct Piece {
    Part part;
    int32_t id = 0;    // of a special token
    uint8_t type = 0;  // token type of this piece
  };
  std::vector<Piece> single;  // for one text
  std::vector<Piece> pair;    // for two texts; empty: the model does not support pairs
};

// BERT's: types 0 for [CLS] A [SEP] and 1 for B [SEP].
SequenceTemplate bert_template(int32_t cls, int32_t sep);
// RoBERTa's: <s> A </s> </s> B </s>, all types 0.
SequenceTemplate roberta_template(int32_t cls, int32_t sep);
// No special tokens; types 0 for A and 1 for B.
SequenceTemplate plain_template();

}  // namespace rf::text
