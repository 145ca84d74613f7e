package main

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
	d.put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	const head = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- {name: p, matchImages: [r.io], defaultCacheDuration: 1h, apiVersion: credentialprovider.kubelet.k8s.io/v1"
	file := d.path("providers.yaml")
	put := func(text string) {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if text != "" {
			testfiles.Write(t, file, text)
		}
	}
	put("{")
	d.start()
	d.shows("Running", "get", "pods")
	for text, want := range map[string]string{
		"{":                               file + ": error converting YAML to JSON",
		"":                                "open " + file + ": no such file or directory",
		head + ", matchImage: [other]}\n": `unknown field "matchImage"`,
	} {
		put(text)
		if r := d.cmd("config", "--config", d.path("config.yaml")); r.code != program.ExitUsage || r.stdout != "" || !strings.Contains(r.stderr, d.path("config.yaml")+":8: imageCredentialProviderConfig: ") || !strings.Contains(r.stderr, want) {
			t.Errorf("%q: config: %+v", text, r)
		}
		if r := d.cmd("install", "--config", d.path("config.yaml")); r.code != program.ExitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%q: install: %+v", text, r)
		}
		if r := d.cmd("status"); r.code != program.ExitOK || !strings.Contains(r.stdout, "\nwarning: ") || !strings.Contains(r.stdout, want) {
			t.Errorf("%q: status: %+v", text, r)
		}
	}
	put(head + "}\n") // its plug-in may come later
	if r := d.cmd("config", "--config", d.path("config.yaml")); r.code != program.ExitOK || !strings.Contains(r.stderr, "warning: credential provider p: stat "+d.path("p")) {
		t.Errorf("without the plug-in: config: %+v", r)
	}
	if r := d.cmd("status"); !strings.Contains(r.stdout, "\nwarning: credential provider p: stat "+d.path("p")) {
		t.Errorf("without the plug-in: status: %+v", r)
	}
	if err := os.WriteFile(d.path("p"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if r := d.cmd("status"); strings.Contains(r.stdout, "warning") {
		t.Errorf("with all that is needed: status: %+v", r)
	}
	d.end()
	if n := strings.Count(d.log.String(), "imageCredentialProviderConfig: credential providers"); n != 1 {
		t.Errorf("it was logged %d times:\n%s", n, d.log)
	}
}

// TestInvalidTokensAreReported: a token that is too short makes all of its file count for nothing. `monopod config` refuses it,
// `monopod status` and the log of the daemon warn of it; the token itself is in none of them.
func TestInvalidTokensAreReported(t *testing.T) {
	t.Parallel()
	const keys = "authentication: {tokenFile: tokens, x509: {clientCAFile: ca.pem}}"
	d := newDaemon(t, keys)
	testfiles.Write(t, d.path("tokens"), "0123456789abcdef,good\nhunter2,prometheus\n")
	testfiles.Write(t, d.path("ca.pem"), "nothing\n")
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
	d.put("pod.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
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
