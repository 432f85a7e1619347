// Beam search (see prompt_search.h).
#pragma once

#include <memory>

#include "prompt_search.h"

namespace rf::engine {

std::unique_ptr<PromptSearch> make_beam_search(const GenerationOptions& options, Decoder& decoder, TokenScores& scores,
                                               int64_t vocab_size, int64_t first_sequence);

}  // namespace rf::engine
