package nat

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

func TestErrorsOfNetlinkAreClassified(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want bool
	}{
		"none":          {nil, false},
		"the errno":     {fmt.Errorf("receive: %w", unix.ENOENT), true},
		"its text":      {errors.New("conn.Receive: netlink receive: no such file or directory"), true},
		"another errno": {fmt.Errorf("receive: %w", unix.EPERM), false},
		"another text":  {errors.New("netlink receive: operation not permitted"), false},
	} {
		if got := missing(tt.err); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
