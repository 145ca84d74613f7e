package cli

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"monopod/internal/daemontest"
	"monopod/internal/program"
	"monopod/internal/testfiles"
	"monopod/runner/runtimetest"
)

// The daemon starts with an invalid file that it reads later; `monopod config` reports it.
func TestAMistakeInAFileThatIsReadLaterKeepsNoDaemonFromStarting(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "imageCredentialProviderConfig: providers.yaml")
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	const head = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- {name: p, matchImages: [r.io], defaultCacheDuration: 1h, apiVersion: credentialprovider.kubelet.k8s.io/v1"
	file := d.Path("providers.yaml")
	put := func(text string) {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if text != "" {
			testfiles.Write(t, file, text)
		}
	}
	put("{")
	d.Start()
	d.Shows("Running", "get", "pods")
	for text, want := range map[string]string{
		"{":                               file + ": error converting YAML to JSON",
		"":                                "open " + file + ": no such file or directory",
		head + ", matchImage: [other]}\n": `unknown field "matchImage"`,
	} {
		put(text)
		if r := d.Cmd("config", "--config", d.Path("config.yaml")); r.Code != program.ExitUsage || r.Stdout != "" || !strings.Contains(r.Stderr, d.Path("config.yaml")+":8: imageCredentialProviderConfig: ") || !strings.Contains(r.Stderr, want) {
			t.Errorf("%q: config: %+v", text, r)
		}
		if r := d.Cmd("install", "--config", d.Path("config.yaml")); r.Code != program.ExitUsage || !strings.Contains(r.Stderr, want) {
			t.Errorf("%q: install: %+v", text, r)
		}
		if r := d.Cmd("status"); r.Code != program.ExitOK || !strings.Contains(r.Stdout, "\nwarning: ") || !strings.Contains(r.Stdout, want) {
			t.Errorf("%q: status: %+v", text, r)
		}
	}
	put(head + "}\n") // its plug-in may come later
	if r := d.Cmd("config", "--config", d.Path("config.yaml")); r.Code != program.ExitOK || !strings.Contains(r.Stderr, "warning: credential provider p: stat "+d.Path("p")) {
		t.Errorf("without the plug-in: config: %+v", r)
	}
	if r := d.Cmd("status"); !strings.Contains(r.Stdout, "\nwarning: credential provider p: stat "+d.Path("p")) {
		t.Errorf("without the plug-in: status: %+v", r)
	}
	if err := os.WriteFile(d.Path("p"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if r := d.Cmd("status"); strings.Contains(r.Stdout, "warning") {
		t.Errorf("with all that is needed: status: %+v", r)
	}
	d.End()
	if n := strings.Count(d.Log.String(), "imageCredentialProviderConfig: credential providers"); n != 1 {
		t.Errorf("it was logged %d times:\n%s", n, d.Log)
	}
}

// TestInvalidTokensAreReported: a token that is too short makes all of its file count for nothing. `monopod config` refuses it,
// `monopod status` and the log of the daemon warn of it; the token itself is in none of them.
func TestInvalidTokensAreReported(t *testing.T) {
	t.Parallel()
	const keys = "authentication: {tokenFile: tokens, x509: {clientCAFile: ca.pem}}"
	d := newDaemon(t, keys)
	testfiles.Write(t, d.Path("tokens"), "0123456789abcdef,good\nhunter2,prometheus\n")
	testfiles.Write(t, d.Path("ca.pem"), "nothing\n")
	r := d.Cmd("config", "--config", d.Path("config.yaml"))
	for _, want := range []string{
		"authentication.tokenFile: ", `the token of user "prometheus" has 7 characters, fewer than 16`, "openssl rand -hex 16",
		"authentication.x509.clientCAFile: ", "it has no certificate in PEM",
	} {
		if r.Code == 0 || !strings.Contains(r.Stderr, want) {
			t.Errorf("config ended with %d and says\n%s\nwant %q", r.Code, r.Stderr, want)
		}
	}
	d.Start()
	status := d.Shows("fewer than 16", "status")
	for where, text := range map[string]string{"config": r.Stdout + r.Stderr, "status": status.Stdout, "the log": d.Log.String()} {
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
		if err := unix.Mkfifo(d.Path(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d.Put("pod.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	r := d.Cmd("config", "--config", d.Path("config.yaml"))
	if n := strings.Count(r.Stderr, "not a regular file"); n != 3 {
		t.Errorf("config says %d times, want 3, that a file is none:\n%s", n, r.Stderr)
	}
	if r := d.Cmd("validate", d.Path("manifests")); !strings.Contains(r.Stdout+r.Stderr, "not a regular file") {
		t.Errorf("validate says\n%s%s", r.Stdout, r.Stderr)
	}
	d.Start()
	d.Shows("web", "get", "pods")
}
