#include "deck/nearest.hpp"

#include <algorithm>

namespace capstan {

int edit_distance(const std::string& a, const std::string& b) {
  const std::size_t n = a.size(), m = b.size();
  std::vector<std::vector<int>> d(n + 1, std::vector<int>(m + 1));
  for (std::size_t i = 0; i <= n; ++i) d[i][0] = static_cast<int>(i);
  for (std::size_t j = 0; j <= m; ++j) d[0][j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= n; ++i) {
    for (std::size_t j = 1; j <= m; ++j) {
      const int change = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[n][m];
}

std::string nearest(const std::string& name, const std::vector<std::string>& names) {
  constexpr std::size_t kLongest = 200;  // what a typo is not: keeps garbage quick
  if (name.size() > kLongest) return "";
  std::string best;
  int least = 1 << 20;
  for (const auto& candidate : names) {
    const int distance = edit_distance(name, candidate);
    const auto longer = static_cast<int>(std::max(name.size(), candidate.size()));
    if (distance > std::max(1, longer / 3) || distance >= longer) continue;
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace capstan
