// .npy files: everything that could be misread is refused by name. tests/oracles/test_io.py reads NumPy's own files.
#include "rf/io/npy.h"

#include <cstring>

#include "io/support.h"
#include "rf/io/files.h"

namespace rf::io {
namespace {

// A file of the given version with this header text and data.
std::string npy(std::string_view header, std::string_view data, int version = 1) {
  std::string text("\x93NUMPY");
  text += static_cast<char>(version);
  text += '\0';
  const uint32_t length = static_cast<uint32_t>(header.size());
  text.append(reinterpret_cast<const char*>(&length), version == 1 ? 2 : 4);
  return text.append(header).append(data);
}

std::string with(std::string_view descr, std::string_view shape, std::string_view order = "False") {
  return fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}\n", descr, order, shape);
}

NpyArray read(const std::string& bytes) { return read_npy(MemoryFile(bytes).path()); }

TEST(Npy, WriterRefusesWhatAReaderWould) {
  const TempDir dir;
  const std::string path = dir / "a.npy";
  const std::vector<float> values(6);
  write_npy(path, DType::kF32, {3, 2}, std::as_bytes(std::span(values)));
  EXPECT_EQ((read_file(path).size() - sizeof(float) * values.size()) % 64, 0u) << "aligned";
  expect_error([&] { write_npy(path, DType::kBF16, {1}, std::as_bytes(std::span("a", 2))); }, {path, "BF16"});
  expect_error([&] { write_npy(path, DType::kF32, {2}, std::as_bytes(std::span(values))); }, {path, "(2)", "24"});
}

TEST(Npy, TheHeaderMayBeWrittenAgain) {
  EXPECT_EQ(npy_header("a", DType::kF32, {INT64_MAX, 3}).size(), npy_header("a", DType::kF32, {0, 3}).size());
}

TEST(Npy, RefusesWhatItCannotRepresent) {
  for (const char* descr : {"f4", ""}) {
    expect_error([&] { read(npy(with(descr, "(1,)"), "abcd")); }, {"descr", fmt::format("\"{}\"", descr)});
  }
  expect_error([] { read(npy(with("|b1", "(1,)"), "\2")); }, {"[/proc/", "0 and 1"});
  const std::string largest(8, '\xff');
  expect_error([&] { read(npy(with("<u8", "(1,)"), largest)).to_int64("ids.npy"); },
               {"[ids.npy]", "below 2^63", "18446744073709551615"});
  expect_error([] { read(npy(with("<f4", "(1,)"), "abcd")).to_int64("ids.npy"); }, {"[ids.npy]", "integer", "F32"});
  EXPECT_EQ(read(npy(with("<f4", "(1,)", "True"), "abcd")).shape,
            std::vector<int64_t>{1});  // one dimension has no order
}

TEST(Npy, RefusesWrongSizes) {
  expect_error([] { read(npy(with("<f4", "(2,)"), "abcd")); }, {"shape (2)", "got 4"});
  expect_error([] { read(npy(with("<f4", "(1,)"), "abcde")); }, {"shape (1)", "got 5"});
  expect_error([] { read(npy(with("<f8", "(4611686018427387904, 4611686018427387904)"), "")); }, {"shape"});
  expect_error([] { read(npy(with("<f8", "(9223372036854775808,)"), "")); }, {"dimension"});
  expect_error([] { read(npy(with("<f8", "(-1,)"), "")); }, {"dimension"});
  std::string cut = npy(with("<f8", "()"), "");
  cut.pop_back();
  expect_error([&] { read(cut); }, {"header must end within the file"});
}

TEST(Npy, RefusesMalformedHeaders) {
  expect_error([] { read("PK\3\4"); }, {"\\x93NUMPY"});
  expect_error([] { read(npy(with("<f4", "(1,)"), "abcd", 4)); }, {"version", "got 4"});
  expect_error([] { read(npy("{'descr': '<f4', 'fortran_order': False}", "")); }, {"keys"});
  expect_error([] { read(npy("{'descr': '<f4', 'descr': '<f4'}", "")); }, {"once", "descr"});
  expect_error([] { read(npy("{'evil': 1}", "")); }, {"evil"});
  expect_error([] { read(npy("{'descr': '<f4', 'fortran_order': 0, 'shape': ()}", "")); }, {"True or False"});
  expect_error([] { read(npy(with("<f4", "()") + "x", "abcd")); }, {"end of the header"});
  expect_error([] { read(npy("{'descr': '<f4", "")); }, {"closed string"});
  std::string huge = npy("", "", 2);
  std::memset(huge.data() + 8, 0xff, 4);
  expect_error([&] { read(huge); }, {"header", "4294967295"});
}

// Every truncation and every changed byte of the header: an array or an Error, nothing else.
TEST(Npy, DamagedFilesNeverCrash) {
  const std::string good = npy(with("<i2", "(2, 2)"), "abcdefgh");
  const auto outcome = [](const std::string& bytes) {
    try {
      read(bytes);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  ASSERT_TRUE(outcome(good));
  for (size_t length = 0; length < good.size(); ++length) EXPECT_FALSE(outcome(good.substr(0, length))) << length;
  for (size_t i = 0; i < good.size() - 8; ++i) {
    for (const char c : {'\0', '\xff', '\'', '(', ')', '9', ',', '{'}) {
      std::string bad = good;
      bad[i] = c;
      outcome(bad);
    }
  }
}

}  // namespace
}  // namespace rf::io
