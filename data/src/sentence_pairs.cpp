#include "rf/data/sentence_pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "document_splitter.h"
#include "input_file.h"
#include "rf/io/error.h"

namespace rf::data {

namespace {

constexpr size_t kPairPieceBytes = size_t{1} << 20;
constexpr const char* kPairsWhere = "sentence pairs";

void add_pair(SentencePairs& pairs, std::string source, std::string target, int64_t line, const PairFiles& files) {
  const bool source_has_text = !is_blank(source);
  if (source_has_text && !is_blank(target)) {
    pairs.sources.push_back(std::move(source));
    pairs.targets.push_back(std::move(target));
    pairs.lines.push_back(line);
    return;
  }
  if (pairs.empty++ == 0) {
    pairs.first_empty = fmt::format("{}, line {}", source_has_text ? files.back() : files.front(), line);
  }
}

SentencePairs of_columns(const PairFiles& files) {
  SentencePairs pairs;
  std::vector<std::string> lines = read_text_lines(files[0]);
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto columns = std::count(lines[i].begin(), lines[i].end(), '\t') + 1;
    if (columns != 2 && !is_blank(lines[i])) {
      fail(kPairsWhere,
           "a row must be a sentence and its translation with a tab between them, got {} columns in {}, "
           "line {}",
           columns, files[0], i + 1);
    }
    const size_t tab = std::min(lines[i].find('\t'), lines[i].size());
    const std::string target = tab < lines[i].size() ? lines[i].substr(tab + 1) : "";
    add_pair(pairs, lines[i].substr(0, tab), target, static_cast<int64_t>(i + 1), files);
  }
  return pairs;
}

SentencePairs of_two_files(const PairFiles& files) {
  std::vector<std::string> sources = read_text_lines(files[0]), targets = read_text_lines(files[1]);
  if (sources.size() != targets.size()) {
    const bool more_sources = sources.size() > targets.size();
    fail(kPairsWhere,
         "both files must have a line for each pair, got {} lines in {} and {} in {}; line {} of {} has no partner",
         sources.size(), files[0], targets.size(), files[1], std::min(sources.size(), targets.size()) + 1,
         more_sources ? files[0] : files[1]);
  }
  SentencePairs pairs;
  for (size_t i = 0; i < sources.size(); ++i) {
    add_pair(pairs, std::move(sources[i]), std::move(targets[i]), static_cast<int64_t>(i + 1), files);
  }
  return pairs;
}

}  // namespace

std::vector<std::string> read_text_lines(const std::string& path) {
  int64_t bytes_read = 0;
  std::vector<std::string> lines;
  InputFile(path, Quotes::kText, bytes_read, kPairPieceBytes).read_all_lines([&](int64_t, std::string_view line) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line);
  });
  return lines;
}

SentencePairs read_sentence_pairs(const PairFiles& files) {
  if (files.size() == 1) return of_columns(files);
  if (files.size() == 2) return of_two_files(files);
  fail<ArgumentError>(kPairsWhere, "pairs must be in two files, or in one with two columns, got {} files",
                      files.size());
}

}  // namespace rf::data
