package containers

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"monopod/internal/daemontest"
	"monopod/internal/testfiles"
)

const podman = `{"cniVersion": "1.0.0", "name": "podman", "plugins": [{"type": "bridge"}]}`

// attach records a pod on a CNI network as libcni does.
func attach(t *testing.T, root, network, sandbox string) {
	t.Helper()
	testfiles.Write(t, filepath.Join(root, "cni", "results", network+"-"+sandbox+"-eth0"), fmt.Sprintf(
		`{"kind": "cniCacheV1", "containerId": %q, "ifName": "eth0", "networkName": %q, "config": "e30=", "result": {}}`, sandbox, network))
}

func TestACNIConfigurationIsUsedOnlyIfItIsNamedOrPodsUseIt(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		config   string
		networks []string // of running pods
		empty    bool     // the host has no configuration
		want     string
		why      string
	}{
		"another program has written one":      {want: "", why: "cniConfDir is not set"},
		"pods of an earlier version are on it": {networks: []string{"podman", "podman"}, want: "host", why: "(kept: 2 pods use it)"},
		"pods on it, but it is gone":           {networks: []string{"podman"}, empty: true, want: "", why: "cniConfDir is not set"},
		"pods of an early version on our own":  {networks: []string{"monopod"}, want: "", why: "cniConfDir is not set"},
		"pods on it, and it is rejected":       {config: "cniConfDir: \"\"\n", networks: []string{"podman"}, want: "", why: "cniConfDir is not set"},
		"another one is named":                 {config: "cniConfDir: mine\n", networks: []string{"podman"}, want: "mine", why: "config.yaml:2)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			testfiles.Write(t, filepath.Join(dir, "config.yaml"), "rootDirectory: root\n"+tt.config)
			if !tt.empty {
				testfiles.Write(t, filepath.Join(dir, "host", "87-podman.conflist"), podman)
			}
			for i, network := range tt.networks {
				attach(t, filepath.Join(dir, "root"), network, fmt.Sprint("sandbox", i))
			}
			cfg, err := daemontest.LoadIn(dir)
			if err != nil {
				t.Fatal(err)
			}
			got := keepNetwork(cfg, filepath.Join(dir, "host"), slog.New(slog.DiscardHandler))
			want, cni := "", ""
			if tt.want != "" {
				want, cni = filepath.Join(dir, tt.want), "podman"
			}
			if got.CNIConfDir != want {
				t.Errorf("cniConfDir is %q, want %q", got.CNIConfDir, want)
			}
			if text := networkText(got, cni, "monopod0"); !strings.Contains(text, tt.why) {
				t.Errorf("%q does not contain %q", text, tt.why)
			}
			kept := strings.Join(Warnings(got), "\n")
			if (kept != "") != (tt.want == "host") || kept != "" && !strings.Contains(kept, "`cniConfDir: "+want+"`") {
				t.Errorf("warning %q", kept)
			}
		})
	}
}

func TestANamedDirectoryWithoutConfigurationIsReported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testfiles.Write(t, filepath.Join(dir, "config.yaml"), "cniConfDir: mine\n")
	cfg, err := daemontest.LoadIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := "monopod's own bridge monopod0, because cniConfDir " + filepath.Join(dir, "mine") + " (" + filepath.Join(dir, "config.yaml") + ":1) has no CNI configuration"
	if text := networkText(cfg, "", "monopod0"); text != want {
		t.Errorf("%q, want %q", text, want)
	}
}
