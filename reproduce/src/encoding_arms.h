// Every position encoding of nn's table as an arm of a comparison of causal models. An encoding that is added to the
// table is an arm of its own accord.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rf::reproduce {

// In the order of the table, as roformer compare takes them: names, with those keys that have no default. Those are a
// grid of kGridWidth columns, and the parts of a head that rotate by each of three axes.
std::vector<std::string> encoding_arms(int64_t head_dim);
inline constexpr int64_t kGridWidth = 8;

// "axial" of "axial:grid_width=8".
std::string encoding_of(const std::string& arm);

}  // namespace rf::reproduce
