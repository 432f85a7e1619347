// Weights in the blocks of GGUF files, beside the same weights as floats, from decoders written anew from ggml's
// formulas, element by element.
#include <omp.h>

#include <bit>
#include <cstring>

#include "core/linear_layer_case.h"
#include "core/row_case.h"
#include "rf/linear.h"

namespace rf::tests {
namespace {

using Bytes = std::vector<uint8_t>;

double half_at(const uint8_t* from) { return ref::load(RF_F16, from, 0); }
int low(int byte) { return byte & 15; }
int high(int byte) { return byte >> 4; }

constexpr int kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr double kFp4[16] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};

// Of blocks of 32: code i of 16 bytes.
int nibble(const uint8_t* q, int i) { return i < 16 ? low(q[i]) : high(q[i - 16]); }
// Of Q4_K and Q5_K.
int nibble_of_super(const uint8_t* q, int i) { return q[i / 64 * 32 + i % 32] >> (i % 64 < 32 ? 0 : 4) & 15; }
int pair_of_super(const uint8_t* q, int i) { return q[i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3; }
int bit(const uint8_t* bits, int i) { return bits[i / 8] >> i % 8 & 1; }

// get_scale_min_k4 of ggml.
int step_of(const uint8_t* q, int j) { return j < 4 ? q[j] & 63 : low(q[j + 4]) | q[j - 4] >> 6 << 4; }
int minimum_step_of(const uint8_t* q, int j) { return j < 4 ? q[j + 4] & 63 : high(q[j + 4]) | q[j] >> 6 << 4; }

int q6_code(const uint8_t* b, int i) {
  const int half = i / 128, l = i % 32, quarter = i % 128 / 32;
  const uint8_t byte = b[half * 64 + l + quarter % 2 * 32];
  return (quarter < 2 ? low(byte) : high(byte)) | (b[128 + half * 32 + l] >> 2 * quarter & 3) << 4;
}
int q3_step(const uint8_t* s, int j) {
  return (j < 8 ? low(s[j]) : high(s[j - 8])) | (s[8 + j % 4] >> j / 4 * 2 & 3) << 4;
}

struct Type {
  rf_block_type type;
  const char* name;
  int elements, bytes;
  std::vector<int> halves;  // where they are in a block
  double (*at)(const uint8_t* b, int i);
};

// Element i of the block at b.
namespace element {
double f16(const uint8_t* b, int) { return half_at(b); }
double bf16(const uint8_t* b, int) { return ref::load(RF_BF16, b, 0); }
double q8_0(const uint8_t* b, int i) { return half_at(b) * static_cast<int8_t>(b[2 + i]); }
double q4_0(const uint8_t* b, int i) { return half_at(b) * (nibble(b + 2, i) - 8); }
double q4_1(const uint8_t* b, int i) { return half_at(b) * nibble(b + 4, i) + half_at(b + 2); }
double q5_0(const uint8_t* b, int i) { return half_at(b) * (nibble(b + 6, i) + 16 * bit(b + 2, i) - 16); }
double q5_1(const uint8_t* b, int i) { return half_at(b) * (nibble(b + 8, i) + 16 * bit(b + 4, i)) + half_at(b + 2); }
double iq4_nl(const uint8_t* b, int i) { return half_at(b) * kIq4[nibble(b + 2, i)]; }
double mxfp4(const uint8_t* b, int i) { return std::ldexp(kFp4[nibble(b + 1, i)], b[0] - 127); }
double q2_k(const uint8_t* b, int i) {
  return half_at(b + 80) * low(b[i / 16]) * pair_of_super(b + 16, i) - half_at(b + 82) * high(b[i / 16]);
}
double q3_k(const uint8_t* b, int i) {
  const bool whole = (b[i % 32] >> i / 32 & 1) != 0;
  return half_at(b + 108) * (q3_step(b + 96, i / 16) - 32) * (pair_of_super(b + 32, i) - (whole ? 0 : 4));
}
double with_minimum(const uint8_t* b, int i, int code) {
  return half_at(b) * step_of(b + 4, i / 32) * code - half_at(b + 2) * minimum_step_of(b + 4, i / 32);
}
double q4_k(const uint8_t* b, int i) { return with_minimum(b, i, nibble_of_super(b + 16, i)); }
double q5_k(const uint8_t* b, int i) {
  return with_minimum(b, i, nibble_of_super(b + 48, i) + 16 * (b[16 + i % 32] >> i / 32 & 1));
}
double q6_k(const uint8_t* b, int i) {
  return half_at(b + 208) * static_cast<int8_t>(b[192 + i / 16]) * (q6_code(b, i) - 32);
}
double iq4_xs(const uint8_t* b, int i) {
  const int j = i / 32, of_high = b[2 + j / 4] >> j % 4 * 2 & 3;
  const int step = (j % 2 == 0 ? low(b[4 + j / 2]) : high(b[4 + j / 2])) + 16 * of_high - 32;
  return half_at(b) * step * kIq4[nibble(b + 8 + 16 * j, i % 32)];
}
}  // namespace element

const Type kBlockTypes[] = {{RF_BLOCK_F16, "F16", 1, 2, {0}, element::f16},
                            {RF_BLOCK_BF16, "BF16", 1, 2, {}, element::bf16},
                            {RF_BLOCK_Q8_0, "Q8_0", 32, 34, {0}, element::q8_0},
                            {RF_BLOCK_Q4_0, "Q4_0", 32, 18, {0}, element::q4_0},
                            {RF_BLOCK_Q4_1, "Q4_1", 32, 20, {0, 2}, element::q4_1},
                            {RF_BLOCK_Q5_0, "Q5_0", 32, 22, {0}, element::q5_0},
                            {RF_BLOCK_Q5_1, "Q5_1", 32, 24, {0, 2}, element::q5_1},
                            {RF_BLOCK_IQ4_NL, "IQ4_NL", 32, 18, {0}, element::iq4_nl},
                            {RF_BLOCK_MXFP4, "MXFP4", 32, 17, {}, element::mxfp4},
                            {RF_BLOCK_Q2_K, "Q2_K", 256, 84, {80, 82}, element::q2_k},
                            {RF_BLOCK_Q3_K, "Q3_K", 256, 110, {108}, element::q3_k},
                            {RF_BLOCK_Q4_K, "Q4_K", 256, 144, {0, 2}, element::q4_k},
                            {RF_BLOCK_Q5_K, "Q5_K", 256, 176, {0, 2}, element::q5_k},
                            {RF_BLOCK_Q6_K, "Q6_K", 256, 210, {208}, element::q6_k},
                            {RF_BLOCK_IQ4_XS, "IQ4_XS", 256, 136, {0}, element::iq4_xs}};

// Rows of random blocks of magnitude about `scale`.
struct FileWeight {
  const Type& type;
  int64_t in, out, row_bytes;
  Bytes bytes;
  std::vector<const void*> rows;

  FileWeight(const Type& of, int64_t in_, int64_t out_, double scale = 0.01)
      : type(of),
        in(in_),
        out(out_),
        row_bytes(in / of.elements * of.bytes),
        bytes(static_cast<size_t>(out * row_bytes) + 1) {
    std::mt19937 random(7);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    std::uniform_real_distribution<double> value(-scale, scale);
    for (int64_t at = 1; at < std::ssize(bytes); at += type.bytes) {
      uint8_t* block = &bytes[at];
      for (const int half : type.halves) ref::store(RF_F16, block + half, 0, value(random));
      if (type.type == RF_BLOCK_MXFP4)
        block[0] = static_cast<uint8_t>(scale < 0.001 ? block[0] % 3 : 118 + block[0] % 8);
      if (type.type == RF_BLOCK_BF16) ref::store(RF_BF16, block, 0, value(random));
    }
    for (int64_t j = 0; j < out; ++j) rows.push_back(bytes.data() + 1 + j * row_bytes);  // of no alignment
  }

  LinearLayerCase layer(int64_t count) const {
    LinearLayerCase linear(RF_F32, count, in, out);
    for (int64_t j = 0; j < out; ++j) {
      for (int64_t i = 0; i < in; ++i) {
        const auto* block = static_cast<const uint8_t*>(rows[j]) + i / type.elements * type.bytes;
        linear.weight.set(j * in + i, type.at(block, static_cast<int>(i % type.elements)));
      }
    }
    return linear;
  }
  Packed pack() const {
    rf_linear_packed* made = nullptr;
    EXPECT_EQ(rf_linear_pack_blocks(type.type, in, out, rows.data(), &made), RF_OK) << rf_last_error();
    return Packed(made);
  }
};

class BlockLinear : public TargetTest {};

constexpr int64_t kShapes[][3] = {{2, 512, 70}, {1, 768, 130}, {66, 256, 1}, {5, 0, 3}};

TEST_P(BlockLinear, EqualsFloat64) {
  for (const Type& type : kBlockTypes) {
    for (const double scale : {0.01, 1e-6, 60000.0}) {
      for (const auto& [rows, in, out] : kShapes) {
        if (scale != 0.01 && rows != 2) continue;
        const FileWeight weight(type, in, out, scale);
        LinearLayerCase linear = weight.layer(rows);
        linear.forward_packed(weight.pack().get(), 0, rows);
        expect_right_forward(linear, type.name + linear.text());
      }
    }
  }
}

// Of any rows together, by any number of threads.
TEST_P(BlockLinear, GivesTheBitsOfFloatWeights) {
  if (GetParam() == "ref") GTEST_SKIP() << "float weights are not packed there";
  constexpr int64_t kRows = 70, kIn = 768, kOut = 192;
  for (const Type& type : kBlockTypes) {
    const FileWeight weight(type, kIn, kOut);
    for (const rf_gelu_form gate : {rf_gelu_form{}, RF_GELU_SILU}) {
      LinearLayerCase floats = weight.layer(kRows), blocks = floats;
      rf_linear_packed* made = nullptr;
      ASSERT_EQ(rf_linear_pack(RF_F32, kIn, kOut, floats.weight.bytes.data(), kIn, &made), RF_OK) << rf_last_error();
      const Packed plain(made), packed = weight.pack();
      const Elements want = floats.forward_packed(plain.get(), 0, kRows, RF_LINEAR_NONE, gate);
      EXPECT_EQ(blocks.forward_packed(packed.get(), 0, kRows, RF_LINEAR_NONE, gate).bytes, want.bytes) << type.name;
      for (const auto& [first, rows] : {std::pair{0, 1}, {5, 2}, {30, 7}, {69, 1}, {3, 66}}) {
        LinearLayerCase part = blocks;
        for (int64_t i = 0; i < part.y.count(); ++i) part.y.set(i, LinearLayerCase::kUntouched);
        omp_set_num_threads(1 + rows % 3);
        const Elements got = part.forward_packed(packed.get(), first, rows, RF_LINEAR_NONE, gate);
        const int64_t row = kOut * 4, begin = first * row;
        ASSERT_EQ(std::memcmp(&got.bytes[begin], &want.bytes[begin], static_cast<size_t>((rows - 1) * row + row / 2)),
                  0)
            << type.name << " rows " << first << " to " << first + rows;
      }
    }
  }
}

TEST_P(BlockLinear, ServesInputsOf16Bits) {
  const FileWeight weight(kBlockTypes[2], 256, 70);
  for (const rf_dtype dtype : {RF_BF16, RF_F16}) {
    LinearLayerCase linear(dtype, RF_F32, 3, 256, 70, 0);
    linear.weight = weight.layer(3).weight;
    linear.forward_packed(weight.pack().get(), 0, 3);
    expect_right_forward(linear, linear.text());
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, BlockLinear, testing::ValuesIn(instruction_sets_and_ref()), name_of_target);

TEST(BlockLinearErrors, OfPacking) {
  rf_linear_packed* made = nullptr;
  FileWeight weight(kBlockTypes[3], 64, 70);
  expect_refused(rf_linear_pack_blocks(RF_BLOCK_Q4_0, 40, 70, weight.rows.data(), &made),
                 "in must be a multiple of 32 for Q4_0", "40");
  expect_refused(rf_linear_pack_blocks(static_cast<rf_block_type>(4), 64, 70, weight.rows.data(), &made),
                 "type must be one of rf_block_type", "4");
  expect_refused(rf_linear_pack_blocks(RF_BLOCK_Q4_0, 64, 70, nullptr, &made), "rows must not be NULL", "NULL");
  ref::store(RF_F16, &weight.bytes[1 + 66 * 36 + 18], 0, INFINITY);
  expect_refused(rf_linear_pack_blocks(RF_BLOCK_Q4_0, 64, 70, weight.rows.data(), &made), "weight must be finite",
                 "NaN or infinity in row 66");
  weight.rows[5] = nullptr;
  expect_refused(rf_linear_pack_blocks(RF_BLOCK_Q4_0, 64, 70, weight.rows.data(), &made), "rows must not be NULL",
                 "row 5");
  EXPECT_EQ(made, nullptr);
}

}  // namespace
}  // namespace rf::tests
