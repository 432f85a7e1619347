// Every position encoding of nn's table as an arm of a comparison of causal models. An encoding that is added to the
// table is an arm of its own accord.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rf::reproduce {

// In the order of the table, as roformer compare takes them: names, with those keys that have no default and the values
// of the table's example. Two have options, whose defaults would not show what they are: sinusoids are added to scaled
// words (kScaledSinusoids), and the window of rerope is half the training length `tokens`; with 512 it would be rope.
std::vector<std::string> encoding_arms(int64_t head_dim, int64_t tokens);

// "axial" of "axial:grid_width=8".
std::string encoding_of(const std::string& arm);

// The second arm of t5 in the atlas: with 1/sqrt(D), and so with the initial values of all other arms.
inline constexpr const char* kScaledT5 = "t5:scale=sqrt";
// encoding_of(arm), but for kScaledT5, which has its own name.
std::string name_of_arm(const std::string& arm);

}  // namespace rf::reproduce
