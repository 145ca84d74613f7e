package apitest

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// Liar is a server that answers everything as it likes, and a kubeconfig for it.
func Liar(t testing.TB, answer http.HandlerFunc) (kubeconfig string) {
	t.Helper()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer(w, r)
	}))
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return WriteKubeconfig(t, "{server: '"+srv.URL+"', certificate-authority: "+ca+"}", "{token: x}")
}

// WriteKubeconfig writes a kubeconfig with a cluster and a user, YAML.
func WriteKubeconfig(t testing.TB, cluster, user string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: " + cluster + "}]\nusers: [{name: u, user: " + user + "}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Flood writes the beginning, then the same piece repeatedly, until the reader closes the connection.
func Flood(begin, piece string, times int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		_, err := io.WriteString(w, begin)
		for i := 0; err == nil && i < times; i++ {
			_, err = io.WriteString(w, piece)
		}
	}
}
