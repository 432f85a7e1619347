"""std::mt19937_64 and std::seed_seq, written from the C++ standard ([rand.eng.mers], [rand.util.seedseq])."""

MASK32, MASK64 = (1 << 32) - 1, (1 << 64) - 1
WORDS, SHIFT = 312, 156


def seed_sequence(values, count):
    """What std::seed_seq{values}.generate() writes into `count` words of 32 bits."""
    words = [0x8B8B8B8B] * count
    t = 11 if count >= 623 else 7 if count >= 68 else 5 if count >= 39 else 3 if count >= 7 else (count - 1) // 2
    p = (count - t) // 2
    q = p + t
    steps = max(len(values) + 1, count)

    def mixed(x):
        return x ^ (x >> 27)

    for k in range(steps):
        r1 = 1664525 * mixed(words[k % count] ^ words[(k + p) % count] ^ words[(k - 1) % count]) & MASK32
        added = len(values) if k == 0 else k % count + (values[k - 1] if k <= len(values) else 0)
        r2 = (r1 + added) & MASK32
        words[(k + p) % count] = (words[(k + p) % count] + r1) & MASK32
        words[(k + q) % count] = (words[(k + q) % count] + r2) & MASK32
        words[k % count] = r2
    for k in range(steps, steps + count):
        r3 = 1566083941 * mixed((words[k % count] + words[(k + p) % count] + words[(k - 1) % count]) & MASK32) & MASK32
        r4 = (r3 - k % count) & MASK32
        words[(k + p) % count] ^= r3
        words[(k + q) % count] ^= r4
        words[k % count] = r4
    return words


class MersenneTwister64:
    def __init__(self, words):
        """words: 624 of 32 bits, as a seed sequence gives them."""
        self.state = [words[2 * i] | words[2 * i + 1] << 32 for i in range(WORDS)]
        if self.state[0] >> 31 == 0 and not any(self.state[1:]):
            self.state[0] = 1 << 63
        self.next = WORDS

    def draw(self):
        if self.next == WORDS:
            self.twist()
        x = self.state[self.next]
        self.next += 1
        x ^= (x >> 29) & 0x5555555555555555
        x ^= (x << 17) & 0x71D67FFFEDA60000
        x ^= (x << 37) & 0xFFF7EEE000000000
        return x ^ (x >> 43)

    def twist(self):
        s = self.state
        for i in range(WORDS):
            y = (s[i] & ~0x7FFFFFFF) | (s[(i + 1) % WORDS] & 0x7FFFFFFF)
            s[i] = s[(i + SHIFT) % WORDS] ^ (y >> 1) ^ (0xB5026F5AA96619E9 if y & 1 else 0)
        self.next = 0
