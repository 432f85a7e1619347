// The AMX tile registers of a thread while a kernel runs. Nothing here is executed on a CPU without AMX.
#pragma once

#include <cstdint>

namespace rf::core {

// C += A B with pairs of bfloat16 in 32 bits: registers 0 to 3 are parts of C, 4 of A and 5 of B; 6 of A and 7 of B for
// the rest of the depth behind its last whole tile.
class AmxTiles {
 public:
  static constexpr int64_t kRows = 16, kUnits = 16;  // of a register; a unit is 32 bits

  AmxTiles() = default;
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;
  ~AmxTiles() {
#if defined(__x86_64__)
    if (rows_ != 0) asm volatile("tilerelease");
#endif
  }

  // rows: of A and C; rest: pairs of the depth behind its last whole tile. The configuration is kept until a call needs
  // another, because setting it takes as long as a dozen products.
  void set(int64_t rows, int64_t rest) {
    if (rows == rows_ && rest == rest_) return;
    rows_ = rows;
    rest_ = rest;
#if defined(__x86_64__)
    Configuration to;
    for (int i = 0; i < 8; ++i) {
      const bool is_a = i == 4 || i == 6, is_b = i == 5 || i == 7, is_rest = i >= 6 && rest != 0;
      const int64_t depth = is_rest ? rest : kUnits;
      to.row_bytes[i] = static_cast<uint16_t>(4 * (is_a ? depth : kUnits));
      to.rows[i] = static_cast<uint8_t>(is_b ? depth : rows);
    }
    asm volatile("ldtilecfg %0" : : "m"(to));
#endif
  }

 private:
  struct alignas(64) Configuration {  // of palette 1
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  };
  int64_t rows_ = 0, rest_ = 0;
};

}  // namespace rf::core
