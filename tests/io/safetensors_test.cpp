// safetensors: round trips, and every rule of the format with the words of its error.
#include "rf/io/safetensors.h"

#include <algorithm>

#include "io/support.h"
#include "rf/io/files.h"

namespace rf::io {
namespace {

std::string container(std::string_view header, std::string_view data) {
  const uint64_t length = header.size();
  std::string text(reinterpret_cast<const char*>(&length), sizeof length);
  return text.append(header).append(data);
}

// Reads a file with this header and data; the tensors' names in file order.
std::vector<std::string> names_in(std::string_view header, std::string_view data) {
  const MemoryFile memory(container(header, data));
  const SafetensorsFile file(memory.path());
  std::vector<std::string> names;
  for (const TensorView& tensor : file.tensors()) names.push_back(tensor.name);
  return names;
}

void expect_refused(std::string_view header, std::string_view data, std::initializer_list<std::string_view> words) {
  expect_error([&] { names_in(header, data); }, words);
}

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

// tests/oracles/test_io.py has all types and shapes, read and written by the format's own library.
TEST(Safetensors, WidestElementsFirst) {
  const TempDir dir;
  const std::string path = dir / "m.safetensors";
  const std::vector<uint8_t> flags = {1, 0, 1};
  const std::vector<double> scale = {0.5};
  write_safetensors(path,
                    {{"flags \"é\"", DType::kBool, {3}, bytes_of(flags)}, {"scale", DType::kF64, {}, bytes_of(scale)}},
                    {{"note", "a\nb"}});
  SafetensorsFile first(path);
  const SafetensorsFile file = std::move(first);  // with the mapping
  EXPECT_EQ(file.metadata().at("note"), "a\nb");
  EXPECT_EQ(file.find("absent"), nullptr);
  ASSERT_NE(file.find("flags \"é\""), nullptr);
  EXPECT_EQ(&file.tensors().at(0), file.find("scale"));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file.find("scale")->data.data()) % alignof(double), 0u);
  EXPECT_TRUE(std::ranges::equal(file.find("scale")->data, bytes_of(scale)));
}

TEST(Safetensors, NothingIsAValidModel) {
  const TempDir dir;
  write_safetensors(dir / "m", {}, {});
  EXPECT_TRUE(SafetensorsFile(dir / "m").tensors().empty());
}

TEST(Safetensors, ReadsTensorsInFileOrder) {
  EXPECT_EQ(names_in(R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},
                         "a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},
                         "z":{"dtype":"F32","shape":[0],"data_offsets":[1,1]}}   )",
                     "xyz"),
            (std::vector<std::string>{"a", "z", "b"}));
}

TEST(Safetensors, RefusesBadLengths) {
  const TempDir dir;
  const std::string path = dir / "m";
  write_file(path, "1234567");
  expect_error([&] { SafetensorsFile{path}; }, {path, "8 bytes of header length", "got 7"});
  write_file(path, container("{}", "").substr(0, 9));
  expect_error([&] { SafetensorsFile{path}; }, {path, "within the file of 9 bytes", "2 bytes"});
  write_file(path, std::string(8, '\xff'));
  expect_error([&] { SafetensorsFile{path}; }, {path, "at most 100000000", "18446744073709551615"});
}

TEST(Safetensors, RefusesHeadersOfAnotherKind) {
  expect_refused("", "", {"[/proc/", "begin with {"});
  expect_refused("[]", "", {"begin with {", "[]"});
  expect_refused("{", "", {"header", "JSON"});
  expect_refused(R"({"a":1})", "", {"tensor \"a\"", "an object", "got 1"});
  expect_refused("{\"a\":" + std::string(1'000'000, '['), "", {"an object", "an array"});
}

TEST(Safetensors, RefusesBadFields) {
  const auto tensor = [](std::string_view fields) { return fmt::format("{{\"a\":{{{}}}}}", fields); };
  expect_refused(tensor(R"("dtype":"F32","shape":[1])"), "abcd", {"\"a\"", "data_offsets"});
  expect_refused(tensor(R"("dtype":"F32","data_offsets":[0,4])"), "abcd", {"\"a\"", "shape"});
  expect_refused(tensor(R"("shape":[1],"data_offsets":[0,4])"), "abcd", {"\"a\"", "dtype"});
  expect_refused(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1)"), "abcd", {"\"a\"", "\"x\""});
  expect_refused(tensor(R"("dtype":"F32","dtype":"F32")"), "", {"\"a\"", "unique", "\"dtype\""});
  expect_refused(tensor(R"("dtype":"F33","shape":[1],"data_offsets":[0,4])"), "abcd", {"\"a\"", "BF16", "\"F33\""});
  expect_refused(tensor(R"("dtype":4)"), "", {"\"dtype\"", "a string", "got 4"});
  expect_refused(tensor(R"("dtype":{})"), "", {"\"dtype\"", "a string", "an object"});
  expect_refused(tensor(R"("shape":"1")"), "", {"\"shape\"", "an array", "a string"});
  expect_refused(tensor(R"("shape":[[1]])"), "", {"\"shape\"", "an array"});
  expect_refused(tensor(R"("shape":[-1])"), "", {"\"shape\"", "at least 0", "got -1"});
  expect_refused(tensor(R"("shape":[1.0])"), "", {"\"shape\"", "integer", "got 1.0"});
  expect_refused(tensor(R"("shape":[true])"), "", {"\"shape\"", "integer", "boolean"});
  expect_refused(tensor(R"("shape":[9223372036854775808])"), "", {"below 2^63", "9223372036854775808"});
  expect_refused(tensor(R"("data_offsets":[0,1,2])"), "", {"\"data_offsets\"", "at most 2"});
  expect_refused(tensor(R"("dtype":"U8","shape":[0],"data_offsets":[0])"), "", {"[begin, end]", "1 numbers"});
  const std::vector<int> ones(65, 1);
  expect_refused(tensor(fmt::format(R"("shape":[{}])", fmt::join(ones, ","))), "", {"at most 64"});
}

TEST(Safetensors, RefusesDuplicateNamesAndMetadataThatAreNoStrings) {
  const std::string entry = R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  expect_refused(fmt::format("{{{},{}}}", entry, entry), "", {"unique", "\"a\""});
  expect_refused(R"({"__metadata__":{},"__metadata__":{}})", "", {"unique", "__metadata__"});
  expect_refused(R"({"__metadata__":{"k":"a","k":"b"}})", "", {"unique", "\"k\""});
  expect_refused(R"({"__metadata__":{"k":1}})", "", {"\"k\"", "a string", "got 1"});
  expect_refused(R"({"__metadata__":{"k":["a"]}})", "", {"\"k\"", "a string", "an array"});
  expect_refused(R"({"__metadata__":"pt"})", "", {"an object", "a string"});
}

TEST(Safetensors, RefusesExtentsThatDoNotTileTheData) {
  const auto two = [](std::string_view first, std::string_view second) {
    return fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":{}}},
                          "b":{{"dtype":"U8","shape":[4],"data_offsets":{}}}}})",
                       first, second);
  };
  expect_refused(two("[0,4]", "[2,6]"), "012345", {"overlap", "\"b\"", "at 2 where 4"});
  expect_refused(two("[0,4]", "[5,9]"), "012345678", {"holes", "\"b\"", "at 5 where 4"});
  expect_refused(two("[0,4]", "[4,8]"), "012345678", {"all 9 bytes", "got 8"});
  expect_refused(two("[0,4]", "[4,8]"), "0123456", {"\"b\"", "within the 7 bytes", "[4, 8]"});
  expect_refused(two("[4,0]", "[4,8]"), "01234567", {"\"a\"", "ordered", "[4, 0]"});
  expect_refused(two("[0,4]", "[4,9]"), "012345678", {"\"b\"", "must take 4 bytes", "[4, 9]"});
}

TEST(Safetensors, RefusesShapesThatOverflow) {
  for (const char* shape :
       {"[4611686018427387904,4]", "[4294967296,4294967296]", "[0,4611686018427387904,4]", "[9223372036854775807]"}) {
    const std::string header = fmt::format(R"({{"a":{{"dtype":"F32","shape":{},"data_offsets":[0,0]}}}})", shape);
    expect_refused(header, "", {"\"a\"", "63 bits"});
  }
}

TEST(Safetensors, WriterRefusesWhatAReaderWould) {
  const TempDir dir;
  const std::string path = dir / "m";
  const std::vector<float> one = {1};
  const TensorView good{"a", DType::kF32, {1}, bytes_of(one)};
  const auto write = [&](const std::vector<TensorView>& tensors, const std::map<std::string, std::string>& metadata) {
    write_safetensors(path, tensors, metadata);
  };
  expect_error([&] { write({good, good}, {}); }, {path, "\"a\"", "unique"});
  expect_error([&] { write({{"__metadata__", DType::kF32, {1}, bytes_of(one)}}, {}); }, {path, "__metadata__"});
  expect_error([&] { write({{"a", DType::kF32, {2}, bytes_of(one)}}, {}); }, {path, "[2] F32", "got 4"});
  expect_error([&] { write({{"a", DType::kF32, {-1}, bytes_of(one)}}, {}); }, {path, "[-1] F32"});
  expect_error([&] { write({{"\xff", DType::kF32, {1}, bytes_of(one)}}, {}); }, {path, "UTF-8", "\\xff"});
  expect_error([&] { write({good}, {{"k", "\xff"}}); }, {path, "UTF-8"});
  EXPECT_EQ(dir.entries(), 0u);
}

// tests/fuzz changes bytes of files.
TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string good = container(R"({"a":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]}})", "abcd");
  const auto read = [](std::string_view bytes) { SafetensorsFile(MemoryFile(bytes).path()); };
  EXPECT_NO_THROW(read(good));
  for (size_t length = 0; length < good.size(); ++length) EXPECT_THROW(read(good.substr(0, length)), Error) << length;
  EXPECT_THROW(read(good + "x"), Error);
}

}  // namespace
}  // namespace rf::io
