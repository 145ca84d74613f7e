//go:build e2e

package network

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"monopod/e2e/nettest"
)

func TestMain(m *testing.M) { nettest.Main(m, becomeHost) }

// becomeHost sets a firewall policy like Docker's, and the bridge setting of a Kubernetes node.
func becomeHost() error {
	if out, err := exec.Command("iptables", "-P", "FORWARD", "DROP").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	_ = os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte("1"), 0)
	return nil
}
