package main

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"monopod/runner/runtimetest"
)

// TestWhatIsWrongWithTokensIsSaid: a token that is too short makes all of its file count for nothing. `monopod config` refuses it,
// `monopod status` and the log of the daemon warn of it; the token itself is in none of them.
func TestWhatIsWrongWithTokensIsSaid(t *testing.T) {
	t.Parallel()
	const keys = "authentication: {tokenFile: tokens, x509: {clientCAFile: ca.pem}}"
	d := newDaemon(t, keys)
	writeFile(t, d.path("tokens"), "0123456789abcdef,good\nhunter2,prometheus\n")
	writeFile(t, d.path("ca.pem"), "nothing\n")
	r := d.cmd("config", "--config", d.path("config.yaml"))
	for _, want := range []string{
		"authentication.tokenFile: ", `the token of user "prometheus" has 7 characters, fewer than 16`, "openssl rand -hex 16",
		"authentication.x509.clientCAFile: ", "it has no certificate in PEM",
	} {
		if r.code == 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("config ended with %d and says\n%s\nwant %q", r.code, r.stderr, want)
		}
	}
	d.start()
	status := d.shows("fewer than 16", "status")
	for where, text := range map[string]string{"config": r.stdout + r.stderr, "status": status.stdout, "the log": d.log.String()} {
		if strings.Contains(text, "hunter2") || where != "config" && !strings.Contains(text, "the token of user") {
			t.Errorf("%s: %s", where, text)
		}
	}
}

// TestNoNamedFileIsWaitedFor: a FIFO in place of a file that the configuration names, or in a directory of manifests, is reported
// and blocks nothing.
func TestNoNamedFileIsWaitedFor(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "authentication: {tokenFile: tokens, x509: {clientCAFile: ca.pem}}", "imageCredentialProviderConfig: providers.yaml", "imageCredentialProviderBinDir: bin")
	for _, name := range []string{"tokens", "ca.pem", "providers.yaml", "manifests/fifo.yaml"} {
		if err := unix.Mkfifo(d.path(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d.put("pod.yaml", podYAML("web", runtimetest.ScriptServe))
	r := d.cmd("config", "--config", d.path("config.yaml"))
	if n := strings.Count(r.stderr, "not a regular file"); n != 3 {
		t.Errorf("config says %d times, want 3, that a file is none:\n%s", n, r.stderr)
	}
	if r := d.cmd("validate", d.path("manifests")); !strings.Contains(r.stdout+r.stderr, "not a regular file") {
		t.Errorf("validate says\n%s%s", r.stdout, r.stderr)
	}
	d.start()
	d.shows("web", "get", "pods")
}
