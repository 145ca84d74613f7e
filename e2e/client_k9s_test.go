//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Keys of k9s.
const (
	enter, tab, escapeKey, backspace, ctrlD = "\r", "\t", "\x1b", "\x7f", "\x04"
)

// k9s is a user of k9s, who looks at its screen and presses keys.
type k9s struct {
	*terminal
	in     *instance
	screen *screen
}

// k9s starts k9s with the credentials of kubectl, on a terminal and with directories of its own.
func (in *instance) k9s(k *kubectl) *k9s {
	in.t.Helper()
	dir := in.t.TempDir()
	// It would exit after five failed connections, within four seconds.
	in.write(filepath.Join(dir, "config.yaml"), "k9s: {maxConnRetry: 1000, skipLatestRevCheck: true, ui: {noIcons: true, logoless: true, splashless: true}}\n")
	c := k.with(in.t, "k9s")
	c.env = append(c.env, "TERM=xterm-256color", "LC_ALL=C.UTF-8", "K9S_CONFIG_DIR="+dir, "K9S_LOGS_DIR="+dir, "TMPDIR="+dir, "PATH="+filepath.Dir(k.program)+":"+os.Getenv("PATH"))
	for _, name := range []string{"CONFIG_HOME", "CACHE_HOME", "DATA_HOME", "STATE_HOME", "RUNTIME_DIR"} {
		c.env = append(c.env, "XDG_"+name+"="+filepath.Join(dir, strings.ToLower(name)))
	}
	const rows, columns = 50, 160
	u := &k9s{terminal: c.onTerminal(rows, columns, "--all-namespaces"), in: in, screen: newScreen(rows, columns)}
	go func() { _, _ = io.Copy(u.screen, u.user) }()                // ends when the terminal is closed
	in.t.Cleanup(func() { _ = u.c.Process.Kill(); _ = u.c.Wait() }) // before its directory is removed
	return u
}

// sees waits until the screen matches all patterns.
func (u *k9s) sees(patterns ...string) {
	u.in.t.Helper()
	u.in.eventually("k9s shows it", func() error {
		text := u.screen.String()
		for _, p := range patterns {
			if !regexp.MustCompile(p).MatchString(text) {
				return fmt.Errorf("no %q on the screen of k9s:\n%s", p, text)
			}
		}
		return nil
	})
}

// presses presses keys.
func (u *k9s) presses(keys string) {
	u.in.t.Helper()
	if _, err := u.user.WriteString(keys); err != nil {
		u.in.t.Fatal(err)
	}
}

// asks gives a command to k9s, as `pods all`, and waits for what it shows.
func (u *k9s) asks(command string, patterns ...string) {
	u.in.t.Helper()
	u.presses(":")
	u.sees(`│ +> `)
	u.presses(command)
	u.sees(`│ +> ` + command)
	u.presses(enter)
	u.sees(patterns...)
}

// busyWeb is a Deployment whose pod takes memory and CPU time.
const busyWeb = `
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: team}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: c
        image: %s
        command: [sh, -c, "trap 'exit 0' TERM; echo output of web; held=$(head -c 16000000 /dev/zero | tr '\\0' x); while :; do sleep 0.02; done"]
        resources: {limits: {cpu: 500m, memory: 200Mi}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: team}
spec: {selector: {app: web}, ports: [{port: 80}]}
`

// TestClientK9s: k9s shows what runs, and changes it.
func TestClientK9s(t *testing.T) {
	t.Parallel()
	in, admin := servesKubernetes(t)
	admin.gives(fmt.Sprintf(busyWeb, image), "apply", "-f", "-")
	admin.prints("rollout", "status", "deployment/web", "-n", "team", "--timeout=60s")
	usage := regexp.MustCompile(`web-0 +[1-9]\d*m +[1-9]\d*Mi`)
	in.eventually("the usage is measured", func() error { // before k9s, which caches it for a minute
		if out, errs, _ := admin.try("", "top", "pods", "-n", "team"); !usage.MatchString(out) {
			return fmt.Errorf("%s%s", out, errs)
		}
		return nil
	})
	u := in.k9s(admin)
	u.shows()
	u.changes(admin)
	u.restarts()
	in.viewsInK9s(admin)
}

// shows: lists with usage, kinds of monopod, and what k9s shows of a pod.
func (u *k9s) shows() {
	u.sees(`K9s Rev: v0\.50\.16`, `pods\(all\)\[2\]`, `default +file .* 1/1 +Running `, `team +web-0 .* 1/1 +Running +0 +[1-9]\d*\S* +[1-9]\d*\S* +[1-9]\d*\S* +[1-9]\d*\S* `)
	u.asks("nodes", `nodes\(all\)\[1\]`, `e2e +Ready `)
	u.asks("svc", `services\(all\)\[2\]`, `default +kubernetes +ClusterIP`, `team +web +ClusterIP`)
	u.asks("sources", `sources\(all\)\[\d+\]`, `file\.yaml`)
	u.asks("agents", `agents\(all\)\[1\]`, `e2e `)
	u.asks("deploy", `deployments\(all\)\[1\]`, `team +web +1/1`)
	u.asks("pods /web-0", `pods\(all\)\[1\]`, `web-0 .* Running`)
	for _, key := range []struct{ key, title, text string }{
		{"d", `Describe\(team/web-0\)`, `Node: +e2e`},
		{"y", `YAML\(team/web-0\)`, `kind: ReplicaSet`},
		{"l", `Logs\(team/web-0:c\)`, `output of web`},
	} {
		u.presses(key.key)
		u.sees(`(?i)`+key.title, key.text)
		u.presses(escapeKey)
		u.sees(`pods\(all\)\[1\]`)
	}
	u.presses("s")
	u.sees(`K9s-Shell.*team/web-0`, `(?m)^/ #`)
	u.presses("echo $((6*7)) in $HOSTNAME" + enter)
	u.sees(`42 in web-0`)
	u.presses("exit" + enter)
	u.sees(`pods\(all\)\[1\]`)
}

// changes: a Deployment is scaled, a pod is deleted, but not one from a file.
func (u *k9s) changes(admin *kubectl) {
	u.asks("deploy /web", `deployments\(all\)\[1\]`, `team +web +1/1`)
	u.presses("s")
	u.sees(`Scale deployment team/web`, `Replicas: +1`)
	u.presses(backspace + "2")
	u.sees(`Replicas: +2`)
	u.presses(tab + enter)
	u.sees(`team +web +2/2`)
	u.asks("pods", `pods\(all\)\[3\]`, `web-0 .* Running`, `web-1 .* Running`)

	admin.gives(sleeper("alone", "echo alone"), "apply", "-f", "-")
	u.asks("pods /alone", `pods\(all\)\[1\]`, `alone .* Running`)
	u.deletes("default", "alone")
	u.sees(`pods\(all\)\[0\]`)
	u.in.gone("alone")
	u.asks("pods /file", `pods\(all\)\[1\]`, `file .* Running`)
	u.deletes("default", "file")
	u.sees(`is defined in`)
}

// deletes deletes the selected pod.
func (u *k9s) deletes(namespace, name string) {
	u.in.t.Helper()
	u.presses(ctrlD)
	u.sees(`<Delete>`, `Delete pods `+namespace+`/`+name)
	u.presses(tab + enter)
}

// restarts: k9s shows a new pod after the agent was killed and started.
func (u *k9s) restarts() {
	u.asks("pods", `pods\(all\)\[3\]`)
	u.in.kill9()
	u.in.start()
	u.in.put("later", sleeper("later", "echo later"))
	u.sees(`pods\(all\)\[4\]`, `later .* Running`)
}

// viewsInK9s: with the role view, pods are shown but not deleted.
func (in *instance) viewsInK9s(admin *kubectl) {
	identity := func() string {
		return admin.prints("get", "pod", "web-0", "-n", "team", "-o", "jsonpath={.metadata.uid} {.metadata.deletionTimestamp}")
	}
	before := identity()
	u := in.k9s(in.client("view"))
	u.sees(`pods\(all\)\[4\]`)
	u.asks("pods /web-0", `pods\(all\)\[1\]`, `web-0 .* Running`)
	u.deletes("team", "web-0")
	u.sees(`Delete failed .*access denied`)
	if after := identity(); after != before {
		in.t.Errorf("pod %s is now %s", before, after)
	}
}
