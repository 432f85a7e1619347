// The vectors of sequences, by the C++ interface: embed MODEL_DIR < IDS. A line of token ids is a sequence; its vector,
// the mean of its last hidden states, is a line of the output.
#include <cstdio>
#include <exception>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "rf/engine/model.h"

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "usage: embed MODEL_DIR < IDS\n");
    return 2;
  }
  const rf::engine::Model model(argv[1], {.head = rf::engine::ModelOptions::Head::kBare});

  std::vector<int32_t> ids;
  std::vector<int64_t> offsets = {0};
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    for (int32_t id; words >> id;) ids.push_back(id);
    offsets.push_back(static_cast<int64_t>(ids.size()));
  }

  const auto width = static_cast<size_t>(model.info().hidden_size);
  std::vector<float> vectors((offsets.size() - 1) * width);
  model.pooled({.ids = ids, .offsets = offsets}, rf::engine::Pooling::kMean, vectors.data());

  for (size_t i = 0; i < vectors.size(); ++i) {
    std::printf("%.9g%c", static_cast<double>(vectors[i]), (i + 1) % width == 0 ? '\n' : ' ');
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
