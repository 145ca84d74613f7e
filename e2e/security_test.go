//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestPodSecurityStandardOfANode: pods that violate it are refused, and running ones keep running.
func TestPodSecurityStandardOfANode(t *testing.T) {
	in := newInstance(t)
	in.start()
	manifest := func(name, security, note string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, annotations: {note: %q}}\nspec:\n  terminationGracePeriodSeconds: 1\n"+
			"  hostNetwork: false\n  containers: [{name: c, image: %q, command: [sleep, infinity], securityContext: %s}]\n", name, note, image, security)
	}
	in.put("runs", manifest("runs", "{privileged: true}", "first"))
	before := in.ready("runs").Status.ContainerStatuses[0].ContainerID
	if err := in.signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	dropIn := filepath.Join(in.dir, "config.d")
	if err := os.Mkdir(dropIn, 0o755); err != nil {
		t.Fatal(err)
	}
	in.write(filepath.Join(dropIn, "security.yaml"), "podSecurity: restricted\nstaticPodPathSecurity: baseline\nallowedUnsafeSysctls: [kernel.msg*]\n")
	in.put("plain", manifest("plain", "{}", ""))
	in.put("privileged", manifest("privileged", "{privileged: true}", ""))
	in.put("runs", manifest("runs", "{privileged: true}", "second"))
	in.put("unsafe", strings.Replace(manifest("unsafe", "{}", ""), "hostNetwork: false", "securityContext: {sysctls: [{name: kernel.msgmax, value: '4096'}]}", 1))
	in.put("forbidden", strings.Replace(manifest("forbidden", "{}", ""), "hostNetwork: false", "securityContext: {sysctls: [{name: kernel.sem, value: '1'}]}", 1))
	in.start()
	in.ready("plain")
	in.eventually("the sources say what is refused", func() error {
		out, err := in.run("get", "sources")
		if err != nil {
			return err
		}
		for _, want := range []string{
			`violates PodSecurity "baseline:v1.37": privileged`, `forbidden sysctl: "kernel.sem" not allowlisted`,
		} {
			if !strings.Contains(out, want) {
				return fmt.Errorf("no %q in\n%s", want, out)
			}
		}
		return nil
	})
	if after := in.ready("runs").Status.ContainerStatuses[0].ContainerID; after != before {
		t.Errorf("the pod that ran was %s and is %s", before, after)
	}
	all, err := in.pods()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"privileged", "forbidden", "unsafe"} {
		if p, ok := all[name]; ok {
			t.Errorf("%s is %s", name, brief(p))
		}
	}
}
