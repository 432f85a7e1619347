// The layouts of blocks in files, and packing (see the header). ggml's types, with bit fields from the low bit:
//
//   a block of 32    scale, minimum: fp16, if present; the halves of byte i are elements i and i + 16
//   a block of 256   fields of 4, 2 and 1 bits in runs of w bytes: field j of byte i of a run is its element w j + i
#include "linear/gemm_blocks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "common/error.h"
#include "common/parallel_tasks.h"
#include "common/scalar_element.h"

namespace rf::core {
namespace {

constexpr int64_t kSmall = 32, kSuper = 256;

uint16_t read_16(const uint8_t* from) {
  uint16_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Adds `count` fields of kBits bits, in runs of `width` bytes, to codes at bit `shift`.
template <int kBits>
void add_fields(const uint8_t* from, int64_t width, int64_t count, int shift, uint8_t* codes) {
  constexpr int kFields = 8 / kBits;
  for (int64_t run = 0; run < count; run += width * kFields, from += width) {
    for (int j = 0; j < kFields; ++j) {
      for (int64_t i = 0; i < width; ++i, ++codes)
        *codes |= static_cast<uint8_t>((from[i] >> j * kBits & ((1 << kBits) - 1)) << shift);
    }
  }
}

template <int kBits>
void read_fields(const uint8_t* from, int64_t width, int64_t count, uint8_t* codes) {
  std::fill_n(codes, count, uint8_t{0});
  add_fields<kBits>(from, width, count, 0, codes);
}

template <int kBits, bool kMinimum>
void read_small(const uint8_t* from, BlockFields& to) {
  to.scale = read_16(from);
  from += 2;
  if (kMinimum) to.minimum = read_16(from), from += 2;
  if (kBits == 8) return static_cast<void>(std::copy_n(from, kSmall, to.codes));
  const uint8_t* high = from;
  if (kBits == 5) from += 4;
  read_fields<4>(from, kSmall / 2, kSmall, to.codes);
  for (int i = 0; kBits == 5 && i < kSmall; ++i) to.codes[i] |= static_cast<uint8_t>((high[i / 8] >> i % 8 & 1) << 4);
}

void read_mxfp4(const uint8_t* from, BlockFields& to) {
  // 2^(e - 128) as bfloat16; the first two are subnormal.
  to.scale = static_cast<uint16_t>(*from < 2 ? 0x20 << *from : (*from - 1) << 7);
  read_fields<4>(from + 1, kSmall / 2, kSmall, to.codes);
}

void read_iq4_xs(const uint8_t* from, BlockFields& to) {
  to.scale = read_16(from);
  const uint32_t high = read_16(from + 2);
  for (int i = 0; i < 8; ++i) {
    const uint32_t low = from[4 + i / 2] >> i % 2 * 4 & 15;
    to.steps[i] = static_cast<uint8_t>((low | (high >> 2 * i & 3) << 4) - 32);
  }
  read_fields<4>(from + 8, 16, kSuper, to.codes);
}

void read_q2_k(const uint8_t* from, BlockFields& to) {
  std::copy_n(from, 16, to.steps);
  read_fields<2>(from + 16, 32, kSuper, to.codes);
  to.scale = read_16(from + 80);
  to.minimum = read_16(from + 82);
}

void read_q3_k(const uint8_t* from, BlockFields& to) {
  read_fields<2>(from + 32, 32, kSuper, to.codes);
  add_fields<1>(from, 32, kSuper, 2, to.codes);
  read_fields<4>(from + 96, 8, 16, to.steps);
  add_fields<2>(from + 104, 4, 16, 4, to.steps);
  for (uint8_t& step : to.steps) step = static_cast<uint8_t>(step - 32);
  to.scale = read_16(from + 108);
}

template <int kBits>
void read_q4_k_or_q5_k(const uint8_t* from, BlockFields& to) {
  to.scale = read_16(from);
  to.minimum = read_16(from + 2);
  const uint8_t* packed = from + 4;
  for (int i = 0; i < 4; ++i) {
    to.steps[i] = packed[i] & 63;
    to.minimum_steps[i] = packed[4 + i] & 63;
    to.steps[4 + i] = static_cast<uint8_t>((packed[8 + i] & 15) | packed[i] >> 6 << 4);
    to.minimum_steps[4 + i] = static_cast<uint8_t>(packed[8 + i] >> 4 | packed[4 + i] >> 6 << 4);
  }
  const uint8_t* codes = from + 16;
  read_fields<4>(kBits == 5 ? codes + 32 : codes, 32, kSuper, to.codes);
  if (kBits == 5) add_fields<1>(codes, 32, kSuper, 4, to.codes);
}

void read_q6_k(const uint8_t* from, BlockFields& to) {
  read_fields<4>(from, 64, kSuper, to.codes);
  add_fields<2>(from + 128, 32, kSuper, 4, to.codes);
  std::copy_n(from + 192, 16, to.steps);
  to.scale = read_16(from + 208);
}

constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr int8_t kFp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};  // twice the numbers

using Scales = BlockScales;
constexpr BlockForm kForms[] = {
    {RF_BLOCK_F16, "F16", 1, 2, 16, Scales::kNone, 32, 0, nullptr, nullptr},
    {RF_BLOCK_BF16, "BF16", 1, 2, 16, Scales::kNone, 32, 0, nullptr, nullptr},
    {RF_BLOCK_Q4_0, "Q4_0", kSmall, 18, 4, Scales::kHalf, 32, 8, nullptr, read_small<4, false>},
    {RF_BLOCK_Q4_1, "Q4_1", kSmall, 20, 4, Scales::kHalfMinimum, 32, 0, nullptr, read_small<4, true>},
    {RF_BLOCK_Q5_0, "Q5_0", kSmall, 22, 5, Scales::kHalf, 32, 16, nullptr, read_small<5, false>},
    {RF_BLOCK_Q5_1, "Q5_1", kSmall, 24, 5, Scales::kHalfMinimum, 32, 0, nullptr, read_small<5, true>},
    {RF_BLOCK_Q8_0, "Q8_0", kSmall, 34, 8, Scales::kHalf, 32, 0, nullptr, read_small<8, false>},
    {RF_BLOCK_Q2_K, "Q2_K", kSuper, 84, 2, Scales::kNibbles, 16, 0, nullptr, read_q2_k},
    {RF_BLOCK_Q3_K, "Q3_K", kSuper, 110, 3, Scales::kSteps, 16, 4, nullptr, read_q3_k},
    {RF_BLOCK_Q4_K, "Q4_K", kSuper, 144, 4, Scales::kStepsMinimum, 32, 0, nullptr, read_q4_k_or_q5_k<4>},
    {RF_BLOCK_Q5_K, "Q5_K", kSuper, 176, 5, Scales::kStepsMinimum, 32, 0, nullptr, read_q4_k_or_q5_k<5>},
    {RF_BLOCK_Q6_K, "Q6_K", kSuper, 210, 6, Scales::kSteps, 16, 32, nullptr, read_q6_k},
    {RF_BLOCK_IQ4_NL, "IQ4_NL", kSmall, 18, 4, Scales::kHalf, 32, 0, kIq4Values, read_small<4, false>},
    {RF_BLOCK_IQ4_XS, "IQ4_XS", kSuper, 136, 4, Scales::kSteps, 32, 0, kIq4Values, read_iq4_xs},
    {RF_BLOCK_MXFP4, "MXFP4", kSmall, 17, 4, Scales::kBfloat16, 32, 0, kFp4Values, read_mxfp4},
};

bool has_two_levels(Scales scales) { return scales >= Scales::kSteps; }
bool has_minimum(Scales scales) {
  return scales == Scales::kHalfMinimum || scales == Scales::kStepsMinimum || scales == Scales::kNibbles;
}
int64_t halves_of(Scales scales) { return scales == Scales::kNone ? 0 : has_minimum(scales) ? 2 : 1; }

// Bits of codes [32] to one column of a plane: `kBits` of each from bit `shift` on.
template <int kBits>
uint8_t* put_plane(const uint8_t* codes, int shift, int64_t lane, uint8_t* plane) {
  constexpr int kFields = 32 / kBits;
  for (int word = 0; word < kBits; ++word, codes += kFields) {
    uint32_t bits = 0;
    for (int i = 0; i < kFields; ++i)
      bits |= uint32_t{static_cast<uint32_t>(codes[i] >> shift) & ((1u << kBits) - 1)} << i * kBits;
    std::memcpy(plane + (word * kBlockColumns + lane) * 4, &bits, sizeof bits);
  }
  return plane + kBits * kBlockColumns * 4;
}

void put_codes(int bits, const uint8_t* codes, int64_t lane, uint8_t* to) {
  if (bits == 8) {
    for (int64_t t = 0; t < kStepDepth; ++t) to[t * kBlockColumns + lane] = codes[t];
    return;
  }
  to = bits < 4 ? put_plane<2>(codes, 0, lane, to) : put_plane<4>(codes, 0, lane, to);
  if (bits == 3) put_plane<1>(codes, 2, lane, to);
  if (bits == 5) put_plane<1>(codes, 4, lane, to);
  if (bits == 6) put_plane<2>(codes, 4, lane, to);
}

void put_16(uint16_t value, int64_t lane, uint8_t* to) { std::memcpy(to + lane * 2, &value, sizeof value); }

constexpr int64_t kHalves = kBlockColumns * 2;  // bytes

// A block of the file to one column of a span.
void put_block(const BlockForm& form, const BlockFields& from, int64_t lane, uint8_t* to) {
  put_16(from.scale, lane, to);
  if (has_minimum(form.scales)) put_16(from.minimum, lane, to + kHalves);
  to += halves_of(form.scales) * kHalves;
  int64_t group = 0;
  for (int64_t t = 0; t < form.elements; t += kStepDepth) {
    for (int64_t i = 0; has_two_levels(form.scales) && i < form.groups_of_step(); ++i, ++group, to += kBlockColumns) {
      to[lane] = from.steps[group];
      if (form.scales != Scales::kStepsMinimum) continue;
      to += kBlockColumns;
      to[lane] = from.minimum_steps[group];
    }
    put_codes(form.bits, from.codes + t, lane, to);
    to += form.code_bytes();
  }
}

// Elements of 16 bits to one column of a block.
void put_halves(const uint8_t* from, int64_t count, int64_t lane, uint8_t* to) {
  for (int64_t t = 0; t < count; ++t) put_16(read_16(from + 2 * t), lane, to + t * kHalves);
}

float float_of(rf_block_type type, uint16_t bits) {
  return type == RF_BLOCK_BF16 || type == RF_BLOCK_MXFP4 ? to_arithmetic(std::bit_cast<BFloat16>(bits))
                                                         : to_arithmetic(std::bit_cast<Float16>(bits));
}

// Products of finite fp16 are finite; products of MXFP4 need not be.
bool is_finite(const BlockForm& form, const BlockFields& fields) {
  const float minimum = has_minimum(form.scales) ? float_of(form.type, fields.minimum) : 0;
  return std::isfinite(float_of(form.type, fields.scale) * kFp4Values[7]) && std::isfinite(minimum);
}

bool is_finite(const BlockForm& form, const uint8_t* row, int64_t count) {
  const int exponent = form.type == RF_BLOCK_BF16 ? 0x7F80 : 0x7C00;
  for (int64_t t = 0; t < count; ++t) {
    if ((read_16(row + 2 * t) & exponent) == exponent) return false;
  }
  return true;
}

void pack_column(const BlockWeight& weight, const uint8_t* row, int64_t column) {
  const BlockForm& form = *weight.form;
  const int64_t lane = column % kBlockColumns;
  uint8_t* to = weight.bytes.get() + column / kBlockColumns * weight.block_bytes();
  bool finite = true;
  if (form.read == nullptr) {
    finite = is_finite(form, row, weight.in);
    put_halves(row, weight.in, lane, to);
  }
  for (int64_t span = 0; form.read != nullptr && span < weight.spans(); ++span) {
    BlockFields fields = {};
    form.read(row + span * form.bytes, fields);
    finite = finite && is_finite(form, fields);
    put_block(form, fields, lane, to + span * form.span_bytes());
  }
  require(finite, "linear", "weight must be finite, got NaN or infinity in row ", column);
}

// Field t of a plane of `bits` bits, of one column.
uint32_t plane_field(const uint8_t* plane, int bits, int64_t lane, int64_t t) {
  const int64_t fields = 32 / bits;
  uint32_t word;
  std::memcpy(&word, plane + (t / fields * kBlockColumns + lane) * 4, sizeof word);
  return word >> t % fields * bits & ((1u << bits) - 1);
}

int code_at(int bits, const uint8_t* codes, int64_t lane, int64_t t) {
  if (bits == 8) return static_cast<int8_t>(codes[t * kBlockColumns + lane]);
  const int low = bits < 4 ? 2 : 4;
  const uint32_t code = plane_field(codes, low, lane, t);
  if (bits == low) return static_cast<int>(code);
  return static_cast<int>(code | plane_field(codes + low * kBlockColumns * 4, bits - low, lane, t) << low);
}

}  // namespace

int64_t BlockForm::scale_bytes() const {
  if (!has_two_levels(scales)) return 0;
  return groups_of_step() * (scales == Scales::kStepsMinimum ? 2 : 1) * kBlockColumns;
}

int64_t BlockForm::top_bytes() const { return halves_of(scales) * kHalves; }

const BlockForm* find_block_form(rf_block_type type) {
  const auto* found = std::ranges::find(kForms, type, &BlockForm::type);
  return found == std::end(kForms) ? nullptr : found;
}

double BlockWeight::at(int64_t column, int64_t depth) const {
  const int64_t lane = column % kBlockColumns, in_span = depth % form->span_depth(), t = in_span % kStepDepth;
  const uint8_t* top = span(column / kBlockColumns, depth / form->span_depth());
  const uint8_t* step = top + form->top_bytes() + in_span / kStepDepth * form->step_bytes();
  const auto half_at = [&](const uint8_t* halves) -> double {
    return float_of(form->type, read_16(halves + lane * 2));
  };
  if (form->scales == Scales::kNone) return half_at(step + t * kHalves);
  double scale = half_at(top), minimum = has_minimum(form->scales) ? half_at(top + kHalves) : 0;
  const int64_t group = t / form->group;
  if (form->scales == Scales::kSteps) scale *= static_cast<int8_t>(step[group * kBlockColumns + lane]);
  if (form->scales == Scales::kNibbles) {
    scale *= step[group * kBlockColumns + lane] & 15;
    minimum *= -(step[group * kBlockColumns + lane] >> 4);
  }
  if (form->scales == Scales::kStepsMinimum) {
    scale *= step[group * 2 * kBlockColumns + lane];
    minimum *= -step[(group * 2 + 1) * kBlockColumns + lane];
  }
  const int code = code_at(form->bits, step + form->scale_bytes(), lane, t);
  const int value = form->values == nullptr ? code - form->zero : form->values[code];
  return static_cast<float>(value * scale + minimum);
}

BlockWeight pack_blocks(const BlockForm& form, int64_t in, int64_t out, const void* const* rows) {
  BlockWeight weight{&form, in, out, {}};
  const int64_t blocks = (out + kBlockColumns - 1) / kBlockColumns, bytes = weight.block_bytes();
  weight.bytes = huge_array<uint8_t>(blocks * bytes);
  parallel_tasks<Schedule::kDynamic>({blocks, blocks > 1}, [&](int64_t block, void*) {
    std::fill_n(weight.bytes.get() + block * bytes, bytes, uint8_t{0});
    for (int64_t j = block * kBlockColumns; j < std::min(out, (block + 1) * kBlockColumns); ++j)
      pack_column(weight, static_cast<const uint8_t*>(rows[j]), j);
  });
  return weight;
}

}  // namespace rf::core
