package enrolment

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ParseCPUs reads a number of CPUs above 0: "1.5".
func ParseCPUs(s string) (float64, error) {
	v, ok := parsePlain(s)
	if !ok || v <= 0 || v > maxCPUs {
		return 0, fmt.Errorf("allowed are numbers of CPUs above 0, such as 0.5 or 4")
	}
	return v, nil
}

// ParseBytes reads an amount of memory above 0. Suffixes are binary whatever
// their spelling, as in Docker: k, KB and KiB are all 1024.
func ParseBytes(s string) (float64, error) {
	number, factor := s, 1.0
	if i := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' }); i >= 0 {
		unit := strings.ToLower(strings.TrimSpace(s[i:]))
		number = s[:i]
		switch strings.TrimSuffix(strings.TrimSuffix(unit, "b"), "i") {
		case "":
			if unit == "i" || unit == "ib" {
				number = ""
			}
		case "k":
			factor = 1 << 10
		case "m":
			factor = 1 << 20
		case "g":
			factor = 1 << 30
		case "t":
			factor = 1 << 40
		default:
			number = ""
		}
	}
	v, ok := parsePlain(number)
	if v = math.Floor(v * factor); !ok || v < 1 || v > 1<<56 {
		return 0, fmt.Errorf("allowed are amounts of memory above 0, such as 512MiB or 8GiB")
	}
	return v, nil
}

// parsePlain reads digits with at most one dot: no sign, exponent, hex or NaN.
func parsePlain(s string) (float64, bool) {
	if s == "" || len(s) > 20 || strings.Trim(s, "0123456789.") != "" || strings.Count(s, ".") > 1 {
		return 0, false
	}
	v, err := strconv.ParseFloat(s, 64)
	return v, err == nil
}

// FormatBytes writes an amount of memory so that ParseBytes reads it back, to
// two decimals.
func FormatBytes(v float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	return trimZeros(v) + units[i]
}

func formatCPUs(v float64) string { return trimZeros(v) }

func trimZeros(v float64) string {
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(v, 'f', 2, 64), "0"), ".")
}
