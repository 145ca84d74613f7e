package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	"monopod/internal/cause"
)

func TestFaultsOfErrors(t *testing.T) {
	dialed := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", err)}
	}
	for name, tt := range map[string]struct {
		err  error
		want cause.Fault
	}{
		"nothing listens":         {dialed(syscall.ECONNREFUSED), cause.Refused},
		"no route":                {dialed(syscall.EHOSTUNREACH), ""},
		"the kernel gave up":      {dialed(syscall.ETIMEDOUT), cause.TimedOut},
		"our deadline":            {fmt.Errorf("no answer within 1s: %w", os.ErrDeadlineExceeded), cause.TimedOut},
		"the deadline of the ctx": {fmt.Errorf("dial: %w", context.DeadlineExceeded), cause.TimedOut},
		"runc finds no program":   {errors.New(`OCI runtime exec failed: exec failed: unable to start container process: exec: "nope": executable file not found in $PATH`), cause.NoProgram},
		"runc finds no path":      {errors.New(`exec failed: exec: "/bin/nope": stat /bin/nope: no such file or directory`), cause.NoProgram},
		"something else":          {errors.New("stopped after 10 redirects"), ""},
	} {
		if got := faultOf(tt.err); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestFaultsOfCommandsAndResponses(t *testing.T) {
	for _, tt := range []struct {
		code   int
		output string
		want   cause.Fault
	}{
		{1, "", ""},
		{127, "", cause.NoProgram},
		{127, "sh: nope: not found", cause.NoProgram},
		{1, "cat: /tmp/ready: No such file or directory", ""},
		{1, "cat: can't open '/tmp/ready': no such file or directory", cause.NoProgram},
		{1, "wget: can't connect to remote host (127.0.0.1): connection refused", cause.Refused},
		{28, "curl: (28) Operation timed out after 1000 milliseconds", cause.TimedOut},
		{4, "grpc: status code: 404", cause.NotFound},
	} {
		if got := outputFault(tt.code, tt.output); got != tt.want {
			t.Errorf("exit code %d, %q: %q, want %q", tt.code, tt.output, got, tt.want)
		}
	}
	for code, want := range map[int]cause.Fault{404: cause.NotFound, 503: "", 400: ""} {
		if got := statusFault(code); got != want {
			t.Errorf("%d: %q, want %q", code, got, want)
		}
	}
}
