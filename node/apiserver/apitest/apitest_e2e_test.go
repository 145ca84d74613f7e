//go:build e2e

package apitest_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"monopod/node/apiserver/apitest"
)

func TestTheAPIServerStartsPausesAndComesBack(t *testing.T) {
	before := time.Now()
	s := apitest.Start(t, apitest.Options{})
	t.Logf("ready after %v", time.Since(before))
	ns := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "kept"}}
	s.Must(http.MethodPost, "/api/v1/namespaces", ns, nil)
	s.Stop()
	if err := s.Do(http.MethodGet, "/api/v1/namespaces/kept", nil, nil); err == nil {
		t.Error("it answers although it has been stopped")
	}
	s.Start()
	s.Must(http.MethodGet, "/api/v1/namespaces/kept", nil, nil)
	var version string
	s.Must(http.MethodGet, "/version", nil, &version)
	if !strings.Contains(version, "v1.37.2") {
		t.Error(version)
	}
}
