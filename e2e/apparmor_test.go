//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// hasAppArmor reports whether this machine enforces profiles.
func hasAppArmor() bool {
	b, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	if err != nil || len(b) == 0 || b[0] != 'Y' {
		return false
	}
	_, err = os.Stat("/sys/kernel/security/apparmor/profiles")
	return err == nil
}

// armored is a pod whose only container prints its profile and then sleeps.
func armored(name, annotations, security string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, annotations: {%s}}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: %s
    securityContext: {%s}
    command:
    - sh
    - -c
    - |
      cat /proc/self/attr/current 2>/dev/null | tr '\\000' '\\n'; echo
      mkdir -p /tmp/m; mount -t tmpfs none /tmp/m 2>/dev/null && echo mounted
      (echo x > /tmp/secret) 2>/dev/null && echo wrote
      (echo 0 > /proc/sys/kernel/printk_delay) 2>/dev/null && echo tuned
      echo done; exec sleep infinity
`, name, annotations, image, security)
}

// says waits for the last line of an armored container and returns the lines before it.
func (in *instance) says(name string) string {
	in.t.Helper()
	var text string
	in.eventually(name+" has said all", func() error {
		out, err := in.run("logs", name)
		var found bool
		if text, found = strings.CutSuffix(out, "done\n"); err == nil && !found {
			err = fmt.Errorf("log is %q", out)
		}
		return err
	})
	return strings.Join(strings.Fields(text), " ")
}

// TestAppArmor: with AppArmor in the kernel, profiles are enforced; without it, an explicit profile keeps the pod waiting.
func TestAppArmor(t *testing.T) {
	const admin = `capabilities: {add: [SYS_ADMIN]}`
	pods := map[string]struct{ annotations, security, confined, unconfined string }{
		"plain":      {"", admin, "cri-containerd.apparmor.d (enforce) wrote", "mounted wrote"},
		"default":    {"", admin + ", appArmorProfile: {type: RuntimeDefault}", "cri-containerd.apparmor.d (enforce) wrote", ""},
		"unconfined": {"", admin + ", appArmorProfile: {type: Unconfined}", "unconfined mounted wrote", "mounted wrote"},
		"local":      {"", admin + ", appArmorProfile: {type: Localhost, localhostProfile: monopod-e2e}", "monopod-e2e (enforce) mounted", ""},
		"annotated":  {"container.apparmor.security.beta.kubernetes.io/c: localhost/monopod-e2e", admin, "monopod-e2e (enforce) mounted", ""},
		"privileged": {"", "privileged: true", "unconfined mounted wrote tuned", "mounted wrote tuned"},
	}
	with := hasAppArmor()
	if with {
		cmd := exec.Command("apparmor_parser", "--skip-cache", "--replace")
		cmd.Stdin = strings.NewReader("profile monopod-e2e flags=(attach_disconnected,mediate_deleted) {\nnetwork,\ncapability,\nfile,\nmount,\numount,\nsignal,\ndeny /tmp/secret w,\n}\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("load a profile: %v: %s", err, out)
		}
	}
	in := newInstance(t)
	in.start()
	for name, p := range pods {
		in.put(name, armored(name, p.annotations, p.security))
	}
	if with {
		in.put("missing", armored("missing", "", "appArmorProfile: {type: Localhost, localhostProfile: monopod-e2e-none}"))
		in.waits("missing", "CreateContainerError", "apparmor profile not found monopod-e2e-none")
	}
	for name, p := range pods {
		want := p.unconfined
		if with {
			want = p.confined
		}
		if want == "" {
			in.waits(name, "AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host")
			continue
		}
		if got := in.says(name); got != want {
			t.Errorf("%s says %q, want %q", name, got, want)
		}
		if !with {
			continue
		}
		out, err := in.run("exec", name, "--", "sh", "-c", "cat /proc/self/attr/current; (echo x > /tmp/secret) 2>/dev/null && echo wrote; true")
		got := strings.Join(strings.Fields(strings.ReplaceAll(out, "\x00", " ")), " ")
		if own := strings.Replace(strings.Replace(want, " mounted", "", 1), " tuned", "", 1); got != own || err != nil {
			t.Errorf("%s: a command in it says %q, want %q: %v", name, got, own, err)
		}
	}
}

// waits waits until a pod's container is waiting for a reason.
func (in *instance) waits(name, reason, message string) {
	in.t.Helper()
	in.pod(name, "waits with reason "+reason, func(p corev1.Pod) bool {
		for _, c := range p.Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil && w.Reason == reason && strings.Contains(w.Message, message) {
				return true
			}
		}
		return false
	})
}
