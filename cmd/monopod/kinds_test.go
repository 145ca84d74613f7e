package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"monopod/internal/daemontest/clitest"
	"monopod/node/kubeapi/kinds"
)

// TestEachKindIsListed lists all kinds of a running daemon, as a table and as objects: what a kind is made from is put together in this program.
func TestEachKindIsListed(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Put("web.yaml", clitest.Reachable)
	d.Start()
	d.Shows("2/2", "get", "pods")
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var n net.Dialer
		return n.DialContext(ctx, "unix", d.Path("run", "monopod.sock"))
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	listed := 0
	for _, k := range kinds.Serve(nil).All() {
		if !k.Allows("list") {
			continue
		}
		listed++
		path := "/apis/" + k.GroupVersion().String()
		if k.Group == "" {
			path = "/api/" + k.Version
		}
		for _, as := range []string{"application/json", "application/json;as=Table;v=v1;g=meta.k8s.io"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://monopod"+path+"/"+k.Plural, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Accept", as)
			answer, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if err != nil || answer.StatusCode != http.StatusOK {
				t.Errorf("%s/%s as %s: %s %s %v", path, k.Plural, as, answer.Status, body, err)
			}
		}
	}
	if listed < 30 {
		t.Errorf("%d kinds", listed)
	}
}
