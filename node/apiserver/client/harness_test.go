package client_test

import (
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"monopod/node/apiserver/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Short names of apitest.
var (
	liar            = apitest.Liar
	writeKubeconfig = apitest.WriteKubeconfig
	flood           = apitest.Flood
)

// eventually polls until try succeeds.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

// quiet discards all log lines.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
