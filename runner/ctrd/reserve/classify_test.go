package reserve

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

func TestErrorsOfFullDisksAreClassified(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want fullness
	}{
		"none":       {nil, notFull},
		"other":      {errors.New("permission denied"), notFull},
		"quota":      {fmt.Errorf("write x: %w", unix.EDQUOT), quotaExceeded},
		"disk":       {fmt.Errorf("write x: %w", unix.ENOSPC), diskFull},
		"its text":   {errors.New("rpc error: write /x: no space left on device"), diskFull},
		"containerd": {errors.New("gc failed"), collectorFailed},
	} {
		if got := classifyFull(tt.err); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}
