// A temporary directory in which prepare() runs.
#pragma once

#include "fixtures.h"

namespace rf::data {

class Prepare : public testing::Test {
 protected:
  PrepareReport run(PrepareOptions options) {
    io::Progress progress;
    if (options.input.inputs.empty()) options.input.inputs = {directory_ / "text"};
    if (options.model_dir.empty()) options.model_dir = make_model(directory_);
    if (options.output_dir.empty()) options.output_dir = directory_ / "out";
    return prepare(options, progress);
  }
  std::string run_error(const PrepareOptions& options) {
    return error_of([&] { run(options); });
  }
  // `lines` documents of a few words each.
  void write_lines(int64_t lines) {
    std::string text;
    for (int64_t i = 0; i < lines; ++i) {
      for (int64_t j = 0; j <= i % 17; ++j) {
        text += fmt::format("W{}{} ", (i * 31 + j) % 300, j % 3 == 0 ? fmt::format("x{}", j) : "");
      }
      text += "zzz\n";
    }
    write(directory_ / "text/a.txt", text);
  }
  std::vector<int32_t> tokens(const std::string& split_name) {
    const Split split(directory_ / "out", split_name, "");
    std::vector<int32_t> ids;
    for (int64_t d = 0; d < split.documents(); ++d) {
      const TestDocument document = read_document(split, d);
      ids.insert(ids.end(), document.ids.begin(), document.ids.end());
    }
    return ids;
  }
  const Directory directory_;
};

}  // namespace rf::data
