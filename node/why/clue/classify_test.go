package clue_test

import (
	"testing"

	"monopod/node/why/clue"
)

func TestProgramsThatFindTheirPortTaken(t *testing.T) {
	for line, want := range map[string]struct {
		port  int
		taken bool
	}{
		"nginx: [emerg] bind() to 0.0.0.0:80 failed (98: Address in use)":    {80, true},
		"listen tcp :8080: bind: address already in use":                     {8080, true},
		"Error: listen EADDRINUSE: address already in use :::3000":           {3000, true},
		"bind: Address already in use":                                       {0, true},
		"Port 5432 is already in use":                                        {5432, true},
		"OSError: [Errno 98] Address already in use: ('0.0.0.0', port=9000)": {9000, true},
		"listening on :8080":                                                 {},
		"cannot start":                                                       {},
	} {
		port, taken := clue.PortTaken([]string{"starting", line, "bye"})
		if port != want.port || taken != want.taken {
			t.Errorf("%s: %d %v", line, port, taken)
		}
	}
}
