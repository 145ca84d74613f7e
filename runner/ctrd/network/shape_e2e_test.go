//go:build e2e

package network_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod/e2e/netbed"
	"monopod/runner/ctrd/network/bandwidth"
)

func TestABandwidthThatNoPluginLimitsIsAnError(t *testing.T) {
	b := netbed.New(t, "10.199.21.0/24")
	if err := os.MkdirAll(filepath.Join(b.Dir, "net.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	conf := `{"cniVersion":"1.0.0","name":"bare","plugins":[{"type":"bridge","bridge":"mp-bare","ipam":{"type":"host-local","dataDir":"` +
		b.Dir + `/ipam","ranges":[[{"subnet":"10.199.21.0/24"}]]}}]}`
	if err := os.WriteFile(filepath.Join(b.Dir, "net.d", "1.conflist"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	b.Start(t)
	p := b.Pod(t, "p")
	p.Bandwidth = bandwidth.Limits{Ingress: 1e6}
	if _, err := b.Setup(t.Context(), p); err == nil || !strings.Contains(err.Error(), "limits bandwidth") {
		t.Errorf("the limit was dropped: %v", err)
	}
}
