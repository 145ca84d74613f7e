package attach

import (
	"errors"
	"strings"
	"testing"
)

func TestTheKeysToLeaveATerminal(t *testing.T) {
	for in, want := range map[string]string{
		"abc":             "abc",
		"a\x10b":          "a\x10b",
		"a\x10\x10\x11b":  "a\x10",
		"ab\x10\x11cd":    "ab",
		"\x11\x10":        "\x11",
		"a\x10bc\x10\x11": "a\x10bc",
	} {
		for _, size := range []int{1, 2, 3, 100} {
			left := false
			d := &detachable{from: strings.NewReader(in), leave: func() { left = true }}
			var got []byte
			var err error
			for p := make([]byte, size); err == nil; {
				var n int
				n, err = d.Read(p)
				got = append(got, p[:n]...)
			}
			if wanted := strings.Contains(in, "\x10\x11"); string(got) != want || left != wanted || errors.Is(err, errDetach) != wanted {
				t.Errorf("%q in pieces of %d: %q, %v, left: %t", in, size, got, err, left)
			}
		}
	}
}
