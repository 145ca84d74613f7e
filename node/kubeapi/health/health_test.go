package health

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/version"
)

func TestServe(t *testing.T) {
	good := []Check{{Name: "ping"}, {"state", func(context.Context) error { return nil }}}
	bad := []Check{{Name: "ping"}, {"state", func(context.Context) error { return errors.New("blind") }}}
	for _, c := range []struct {
		checks       []Check
		query, check string
		code         int
		body         string
	}{
		{good, "", "", 200, "ok"},
		{good, "?verbose", "", 200, "[+]ping ok\n[+]state ok\nreadyz check passed\n"},
		{good, "?verbose=true&exclude=ping", "", 200, "[+]state ok\nreadyz check passed\n"},
		{good, "", "ping", 200, "ok"},
		{good, "?verbose", "ping/", 200, "[+]ping ok\nreadyz check passed\n"},
		{good, "", "etcd", 404, ""},
		{bad, "", "", 500, "[+]ping ok\n[-]state failed: blind\nreadyz check failed\n"},
		{bad, "?exclude=state", "", 200, "ok"},
		{bad, "", "state", 500, "[-]state failed: blind\nreadyz check failed\n"},
		{bad, "", "ping", 200, "ok"},
	} {
		w, code := httptest.NewRecorder(), 404
		if Serve(w, httptest.NewRequest(http.MethodGet, "/readyz"+c.query, http.NoBody), "readyz", c.check, c.checks) {
			code = w.Code
		}
		if code != c.code || w.Body.String() != c.body {
			t.Errorf("%s %s: %d %q", c.query, c.check, code, w.Body)
		}
	}
	if good[0].Name != "ping" {
		t.Error("the checks of the caller were changed")
	}
}

func TestVersionIsThatOfTheLinkedAPI(t *testing.T) {
	w := httptest.NewRecorder()
	Version(w, "v9")
	var info version.Info
	if err := json.Unmarshal(w.Body.Bytes(), &info); err != nil || info.Major != "1" || info.GitVersion != "v"+Level+"+monopod" || info.GitCommit != "v9" {
		t.Errorf("%v %s", err, w.Body)
	}
	mod, err := os.ReadFile("../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	linked := regexp.MustCompile(`(?m)^\s*k8s\.io/api v0\.(\d+\.\d+)$`).FindSubmatch(mod)
	if linked == nil || Level != "1."+string(linked[1]) || !strings.HasPrefix(Level, "1."+info.Minor+".") {
		t.Errorf("the API is that of %s, Level is %s, minor %s", linked, Level, info.Minor)
	}
}
