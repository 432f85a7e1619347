// A tokenizer of bytes, without training: the id of a byte is its value, and the five special tokens follow from 256
// on. It is byte-level BPE without merges, so other programs can open its files.
#pragma once

#include "rf/text/tokenizer.h"

namespace rf::text {

Tokenizer byte_tokenizer();

}  // namespace rf::text
