//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod/internal/cause"
)

// TestWhySaysWhatAPodIsBusyWith from the first second on: a CNI plug-in and an OCI runtime that block until they are released.
func TestWhySaysWhatAPodIsBusyWith(t *testing.T) {
	in := newInstance(t)
	plugins := filepath.Join(in.dir, "plugins")
	if err := os.Mkdir(plugins, 0o755); err != nil {
		t.Fatal(err)
	}
	script := func(path, text string) string {
		t.Helper()
		hangs := fmt.Sprintf("until test -e %[1]s.go || ! test -d %[2]s; do sleep 0.1; done", path, plugins)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+fmt.Sprintf(text, hangs)), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plugin := script(filepath.Join(plugins, "slow"), `case $CNI_COMMAND in
ADD) %s; echo '{"cniVersion": "1.0.0", "ips": [{"address": "10.222.255.2/24"}]}' ;;
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}' ;;
esac
`)
	runtime := script(filepath.Join(in.dir, "slow-runc"), `case " $* " in *" create "*) %s ;; esac
exec runc "$@"
`)
	in.write(filepath.Join(in.dir, "cni", "10-slow.conflist"), `{"cniVersion": "1.0.0", "name": "slow", "plugins": [{"type": "slow"}]}`)
	in.write(in.config, in.read("config.yaml")+fmt.Sprintf("cniBinDirs: [%s]\nruntimeHandlers: {slow: %s}\n", plugins, runtime))
	in.start()
	in.put("class", "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: slow}\nhandler: slow\n")
	for _, c := range []struct{ pod, spec, says, letGo string }{
		{"net", "", "the network of the pod is being set up, started ", plugin},
		{"run", "hostNetwork: true, runtimeClassName: slow,", "the container runtime is starting container c, started ", runtime},
	} {
		in.put(c.pod, podOf(c.pod, "image: "+image+", "+sleeping, c.spec))
		if text := in.explains(c.pod, cause.InProgress, c.says, "is starting"); strings.Contains(text, "no problem") {
			t.Errorf("of a pod that may hang:\n%s", text)
		}
		in.write(c.letGo+".go", "")
		in.ready(c.pod)
	}
}
