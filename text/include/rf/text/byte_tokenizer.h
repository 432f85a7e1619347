// A tokenizer of bytes, which learns nothing: the id of a byte is its value, and the five special tokens follow from
// 256 on. It is byte-level BPE without merges, so that its files are those of that kind and other programs open them.
#pragma once

#include "rf/text/tokenizer.h"

namespace rf::text {

Tokenizer byte_tokenizer();

}  // namespace rf::text
