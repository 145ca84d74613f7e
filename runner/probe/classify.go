package probe

import (
	"errors"
	"net/http"
	"strings"
	"syscall"

	"monopod/internal/cause"
)

// faultOf classifies an error of an attempt. Errors of the container runtime arrive here only as text.
func faultOf(err error) cause.Fault {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return cause.Refused
	case late(err):
		return cause.TimedOut
	}
	return textFault(err.Error())
}

// statusFault classifies the status of an HTTP response that counts as a failure.
func statusFault(code int) cause.Fault {
	if code == http.StatusNotFound {
		return cause.NotFound
	}
	return ""
}

// notFoundCode is the exit code of shells for "command not found".
const notFoundCode = 127

// outputFault classifies how a command failed, by its exit code and what clients such as curl and wget print.
func outputFault(code int, output string) cause.Fault {
	if f := textFault(output); f != "" {
		return f
	}
	if code == notFoundCode {
		return cause.NoProgram
	}
	return ""
}

// textFault searches for messages of programs and of the OCI runtime.
func textFault(text string) cause.Fault {
	for _, w := range []struct {
		words string
		fault cause.Fault
	}{
		{"connection refused", cause.Refused},
		{"status code: 404", cause.NotFound},
		{"deadline exceeded", cause.TimedOut},
		{"timeout", cause.TimedOut},
		{"timed out", cause.TimedOut},
		{"no such file", cause.NoProgram},
		{"not found", cause.NoProgram},
	} {
		if strings.Contains(text, w.words) {
			return w.fault
		}
	}
	return ""
}
