package stream

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain forgives client-go's clients what stays of them for some seconds.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("k8s.io/client-go/tools/remotecommand.(*heartbeat).start"),
		goleak.IgnoreTopFunction("github.com/moby/spdystream.(*Connection).shutdown"))
}
