#include "rf/data/format.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <vector>

#include "rf/io/error.h"
#include "rf/io/nearest_name.h"
#include "rf/io/printable.h"

namespace rf::data {
namespace {

struct Description {
  Format format;
  const char* name;
  std::string_view title;
  std::array<std::string_view, 3> extensions;  // "": none
  char delimiter;
};
constexpr Description kFormats[] = {{Format::kAuto, "auto", "", {}, 0},
                                    {Format::kText, "text", "text", {".txt", ".text"}, 0},
                                    {Format::kJsonLines, "jsonl", "JSON lines", {".jsonl", ".ndjson", ".json"}, 0},
                                    {Format::kCsv, "csv", "CSV", {".csv"}, ','},
                                    {Format::kTsv, "tsv", "TSV", {".tsv", ".tab"}, '\t'},
                                    {Format::kParquet, "parquet", "Parquet", {".parquet"}, 0}};

const Description& description(Format format) { return *std::ranges::find(kFormats, format, &Description::format); }

std::string lower_extension(const std::filesystem::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
  }
  return extension;
}

// ".jsonl" of "a.JSONL.gz".
std::string format_extension(std::filesystem::path path) {
  const std::string last = lower_extension(path);
  if (last == ".gz" || last == ".zst") path = path.stem();
  return lower_extension(path);
}

}  // namespace

Format format(const std::string& name) {
  std::vector<std::string_view> names;
  for (const Description& known : kFormats) {
    if (name == known.name) return known.format;
    names.emplace_back(known.name);
  }
  fail("input", "the format must be {}, got {}", io::listed(names, "or"), io::printable(name));
}

const char* format_name(Format format) { return description(format).name; }

std::optional<Format> format_of(const std::string& path) {
  const std::string extension = format_extension(path);
  if (extension.empty()) return std::nullopt;
  for (const Description& known : kFormats) {
    if (std::ranges::find(known.extensions, extension) != known.extensions.end()) return known.format;
  }
  return std::nullopt;
}

bool is_searched_for(const std::string& path, Format format) {
  const std::optional<Format> found = format_of(path);
  if (!found) return false;
  return format == Format::kAuto ? format_extension(path) != ".json" : *found == format;
}

std::string searched_formats(Format format) {
  if (format != Format::kAuto) return format_name(format);
  std::vector<std::string_view> titles;
  for (const Description& known : kFormats) {
    if (!known.title.empty()) titles.push_back(known.title);
  }
  return io::listed(titles, "or");
}

char delimiter_of(Format format) { return description(format).delimiter; }

}  // namespace rf::data
