package runtime

import (
	"fmt"
	"strconv"
	"strings"
)

// AnyDevice stands for every major or minor number in a DeviceRule.
const AnyDevice = -1

// DeviceRule lets the processes of a container make, read and write device nodes:
// one line of v1's devices.list, one entry of OCI's linux.resources.devices. Its
// text, also in JSON, is v1's: "c 195:* rwm".
type DeviceRule struct {
	Kind         string // "c", "b", or "a" for both
	Major, Minor int    // AnyDevice: all
	Access       string // of "r" read, "w" write, "m" mknod
}

func (r DeviceRule) String() string {
	return fmt.Sprintf("%s %s %s", r.Kind, r.Numbers(), r.Access)
}

// Numbers is the rule's "MAJOR:MINOR".
func (r DeviceRule) Numbers() string { return deviceNumber(r.Major) + ":" + deviceNumber(r.Minor) }

func deviceNumber(n int) string {
	if n == AnyDevice {
		return "*"
	}
	return strconv.Itoa(n)
}

// Covers reports whether the rule lets a character device be read and written. The
// "c *:* m" of every container lets nodes be made, not opened.
func (r DeviceRule) Covers(major, minor int) bool {
	return r.Kind != "b" && (r.Major == AnyDevice || r.Major == major) && (r.Minor == AnyDevice || r.Minor == minor) &&
		strings.Contains(r.Access, "r") && strings.Contains(r.Access, "w")
}

// Contains reports whether all that another rule allows is allowed by this one alone.
func (r DeviceRule) Contains(other DeviceRule) bool {
	return (r.Kind == "a" || r.Kind == other.Kind) && (r.Major == AnyDevice || r.Major == other.Major) &&
		(r.Minor == AnyDevice || r.Minor == other.Minor) && strings.Trim(other.Access, r.Access) == ""
}

// ParseDeviceRule reads a rule's text.
func ParseDeviceRule(s string) (DeviceRule, error) {
	fields := strings.Fields(s)
	if len(fields) != 3 {
		return DeviceRule{}, fmt.Errorf("device rule %q: want KIND MAJOR:MINOR ACCESS", s)
	}
	majorText, minorText, _ := strings.Cut(fields[1], ":")
	major, errMajor := parseDeviceNumber(majorText)
	minor, errMinor := parseDeviceNumber(minorText)
	r := DeviceRule{Kind: fields[0], Major: major, Minor: minor, Access: fields[2]}
	if errMajor != nil || errMinor != nil || len(r.Kind) != 1 || !strings.Contains("abc", r.Kind) || strings.Trim(r.Access, "rwm") != "" {
		return DeviceRule{}, fmt.Errorf("device rule %q: want KIND MAJOR:MINOR ACCESS, such as \"c 195:* rwm\"", s)
	}
	return r, nil
}

// parseDeviceNumber bounds numbers as the kernel's dev_t does.
func parseDeviceNumber(s string) (int, error) {
	if s == "*" {
		return AnyDevice, nil
	}
	n, err := strconv.ParseUint(s, 10, 20)
	return int(n), err
}

// MarshalText and UnmarshalText keep files with rules readable by people.
func (r DeviceRule) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is ParseDeviceRule.
func (r *DeviceRule) UnmarshalText(text []byte) (err error) {
	*r, err = ParseDeviceRule(string(text))
	return err
}
