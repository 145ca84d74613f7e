package house

import (
	"go/ast"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"monopod/internal/version"
)

// listed is the output of `go list` for a package, without its tests.
type listed struct {
	ImportPath string
	Doc        string
	Imports    []string
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// packages returns the packages of the module, with all build tags.
func packages(t *testing.T) []listed {
	t.Helper()
	byPath := map[string]*listed{}
	eachFile(t, func(file string, _ *token.FileSet, f *ast.File) {
		if strings.HasSuffix(file, "_test.go") {
			return
		}
		name := path.Join(version.Module, path.Dir(file))
		p := byPath[name]
		if p == nil {
			p = &listed{ImportPath: name}
			byPath[name] = p
		}
		p.Doc += f.Doc.Text()
		for _, imported := range f.Imports {
			to, err := strconv.Unquote(imported.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			p.Imports = append(p.Imports, to)
		}
	})
	var all []listed
	for _, name := range slices.Sorted(maps.Keys(byPath)) {
		all = append(all, *byPath[name])
	}
	if len(all) < 8 {
		t.Fatalf("there are %d packages only: %v", len(all), all)
	}
	return all
}

// allowed returns which packages of this module each package may import. The longest matching prefix applies; a package that is not listed
// may be imported only by cmd, e2e and examples.
func allowed() map[string][]string {
	return map[string][]string{
		"monopod/manifests":                       {"monopod/internal/quantity"},
		"monopod/manifests/schema":                {},
		"monopod/manifests/lenient":               {},
		"monopod/manifests/document":              {"monopod/manifests"},
		"monopod/manifests/podhash":               {"monopod/manifests"},
		"monopod/manifests/defaults":              {"monopod/manifests"},
		"monopod/manifests/explain":               {"monopod/internal/quantity", "monopod/manifests", "monopod/manifests/document", "monopod/manifests/schema"},
		"monopod/manifests/kinds":                 {"monopod/manifests", "monopod/manifests/document", "monopod/manifests/explain"},
		"monopod/manifests/fates":                 {"monopod/manifests", "monopod/manifests/document", "monopod/manifests/explain", "monopod/manifests/schema"},
		"monopod/manifests/spaces/spacestest":     {"monopod/manifests", "monopod/manifests/decode"},
		"monopod/manifests/validate":              {"monopod/manifests", "monopod/manifests/schema", "monopod/manifests/validate/check", "monopod/manifests/validate/container", "monopod/manifests/validate/storage"},
		"monopod/manifests/validate/check":        {},
		"monopod/manifests/validate/storage":      {"monopod/internal/hostarg", "monopod/manifests", "monopod/manifests/schema", "monopod/manifests/validate/check"},
		"monopod/manifests/validate/container":    {"monopod/manifests", "monopod/manifests/schema", "monopod/manifests/validate/check", "monopod/manifests/validate/storage", "monopod/internal/expand", "monopod/internal/quantity"},
		"monopod/manifests/policy":                {"monopod/manifests", "monopod/manifests/document", "monopod/manifests/validate/container"},
		"monopod/manifests/warn":                  {"monopod/manifests"},
		"monopod/manifests/manifesttest":          {},
		"monopod/manifests/validate/validatetest": {"monopod/manifests/defaults", "monopod/manifests/manifesttest", "monopod/manifests/validate/check"},
		"monopod/manifests/decode": {
			"monopod/internal/quantity", "monopod/manifests", "monopod/manifests/defaults", "monopod/manifests/document", "monopod/manifests/explain",
			"monopod/manifests/fates",
			"monopod/manifests/kinds", "monopod/manifests/lenient", "monopod/manifests/policy", "monopod/manifests/schema", "monopod/manifests/validate",
		},
		"monopod/watcher":             {"monopod/manifests", "monopod/internal"},
		"monopod/watcher/file":        {"monopod/watcher", "monopod/manifests", "monopod/internal"},
		"monopod/watcher/fetch":       {"monopod/watcher", "monopod/manifests", "monopod/internal"},
		"monopod/watcher/emptied":     {"monopod/watcher"},
		"monopod/watcher/watchertest": {"monopod/watcher", "monopod/manifests", "monopod/internal/model"},
		"monopod/runner":              {"monopod/internal/cause", "monopod/internal/model", "monopod/manifests", "monopod/runner/hook", "monopod/runner/probe"},
		"monopod/runner/plan":         {"monopod/internal/cause", "monopod/internal/model", "monopod/runner", "monopod/runner/hook", "monopod/runner/probe", "monopod/manifests"},
		"monopod/runner/plan/retry":   {"monopod/internal/cause", "monopod/runner", "monopod/manifests"},
		"monopod/runner/podstatus":    {"monopod/internal/cause", "monopod/internal/model", "monopod/runner", "monopod/runner/plan", "monopod/runner/probe", "monopod/manifests"},
		"monopod/runner/admit":        {"monopod/internal/cause", "monopod/internal/model", "monopod/runner", "monopod/manifests"},
		"monopod/runner/pool": {
			"monopod/runner", "monopod/runner/admit", "monopod/runner/hook", "monopod/runner/plan", "monopod/runner/podstatus", "monopod/runner/probe",
			"monopod/manifests", "monopod/internal",
		},
		"monopod/runner/pool/occurrence": {
			"monopod/runner", "monopod/runner/plan", "monopod/runner/podstatus", "monopod/runner/probe", "monopod/internal",
		},
		"monopod/runner/pool/activity":        {"monopod/internal/model", "monopod/runner"},
		"monopod/runner/pool/turns":           {},
		"monopod/runner/probe":                {"monopod/internal", "monopod/runner/httpget"},
		"monopod/runner/hook":                 {"monopod/runner/httpget"},
		"monopod/runner/httpget":              {},
		"monopod/runner/spec":                 {"monopod/runner/spec", "monopod/manifests", "monopod/internal"},
		"monopod/runner/runtimetest":          {"monopod/runner", "monopod/manifests", "monopod/internal"},
		"monopod/runner/ctrd":                 {"monopod/runner/ctrd", "monopod/runner", "monopod/runner/spec", "monopod/manifests", "monopod/internal"},
		"monopod/runner/ctrd/shim":            {"monopod/internal"},
		"monopod/runner/ctrd/bounded":         {"monopod/internal"},
		"monopod/runner/ctrd/embed":           {"monopod/runner/ctrd/bounded", "monopod/runner/ctrd/embed", "monopod/internal"},
		"monopod/runner/ctrd/logs":            {"monopod/internal"},
		"monopod/runner/ctrd/linuxns":         {"monopod/internal/cause"},
		"monopod/runner/ctrd/network":         {"monopod/internal", "monopod/runner/ctrd/linuxns"},
		"monopod/runner/ctrd/network/hostcni": {},
		"monopod/runner/ctrd/network/bandwidth": {
			"monopod/runner/ctrd/network/link",
		},
		"monopod/runner/ctrd/network/services": {
			"monopod/runner/service", "monopod/runner/ctrd/network/watch",
		},
		"monopod/runner/ctrd/network/bridge": {"monopod/internal", "monopod/runner/ctrd/network/link", "monopod/runner/ctrd/network/repair"},
		"monopod/runner/ctrd/network/filter": {"monopod/runner/ctrd/network/bridge", "monopod/runner/ctrd/network/xtables"},
		"monopod/runner/ctrd/network/nat":    {"monopod/internal", "monopod/runner/ctrd/network/xtables"},
		"monopod/runner/ctrd/network/repair": {"monopod/internal", "monopod/runner/ctrd/network/link"},
		"monopod/node/names":                 {"monopod/manifests", "monopod/internal"},
		"monopod/node/events":                {"monopod/internal"},
		"monopod/internal/objects":           {"monopod/manifests", "monopod/internal"},
		"monopod/runner/workload":            {"monopod/manifests", "monopod/internal"},
		"monopod/runner/workload/saved":      {"monopod/manifests", "monopod/internal/atomicfile", "monopod/runner/workload/revisions"},
		"monopod/runner/workload/revisions":  {"monopod/manifests"},
		"monopod/runner/service":             {"monopod/internal/model", "monopod/manifests"},
		"monopod/runner/rollout":             {"monopod/manifests", "monopod/internal", "monopod/runner/rollout/packed"},
		"monopod/runner/rollout/packed":      {},
		"monopod/node":                       {"monopod/manifests", "monopod/node/events", "monopod/node/why", "monopod/internal", "monopod/node/localapi", "monopod/node/kubeapi/kinds", "monopod/node/kubeapi/tables"},
		"monopod/node/localapi":              {"monopod/manifests", "monopod/node/budget", "monopod/node/events", "monopod/internal"},
		"monopod/node/localclient":           {"monopod/node/localapi", "monopod/node/events", "monopod/node/stream", "monopod/node/why", "monopod/manifests", "monopod/internal"},
		"monopod/node/kubeapi/tables":        {"monopod/manifests", "monopod/internal", "monopod/node/kubeapi/kinds", "monopod/node/kubeapi/metricsv1beta1", "monopod/node/kubeapi/monopodv1"},
		"monopod/node/kubeapi/patch":         {},
		"monopod/node/kubeapi/managed":       {"monopod/internal/quantity", "monopod/node/kubeapi/kinds"},
		"monopod/node/kubeapi/strategy":      {"monopod/manifests", "monopod/manifests/defaults", "monopod/node/kubeapi/kinds"},
		"monopod/node/kubeapi/storage":       {"monopod/node/kubeapi/kinds"},
		"monopod/node/kubeapi/writes":        {"monopod/node/kubeapi"},
		"monopod/node/kubeapi/kubetest":      {"monopod/node/kubeapi", "monopod/node/kubeapi/kinds"},
		"monopod/node/kubeapi/codec":         {"monopod/node/kubeapi/kinds", "monopod/node/kubeapi/request", "monopod/node/kubeapi/tables", "monopod/manifests/document", "monopod/internal"},
		"monopod/node/kubeapi/discovery":     {"monopod/node/kubeapi/codec", "monopod/node/kubeapi/kinds"},
		"monopod/node/kubeapi/openapi":       {"monopod/node/kubeapi/codec", "monopod/node/kubeapi/kinds", "monopod/node/kubeapi/metricsv1beta1", "monopod/node/kubeapi/monopodv1"},
		"monopod/node/kubeapi/streams":       {"monopod/manifests", "monopod/node/kubeapi/codec", "monopod/node/kubeapi/kinds", "monopod/node/kubeapi/request", "monopod/node/stream", "monopod/internal"},
		"monopod/node/netinfo":               {},
		"monopod/node/apiserver/serviceenv":  {},
		"monopod/node/apiserver/webhook":     {"monopod/node/apiserver/client"},
		"monopod/node/apiserver":             {"monopod/manifests", "monopod/node/events", "monopod/node/nodemeta", "monopod/internal"},
		"monopod/node/apiserver/client":      {"monopod/internal"},
		"monopod/node/apiserver/correlate":   {},
		"monopod/node/apiserver/identity":    {"monopod/node/apiserver/client", "monopod/internal"},
		"monopod/node/apiserver/mirror":      {"monopod/manifests"},
		"monopod/node/admission":             {"monopod/runner", "monopod/manifests", "monopod/node/drain", "monopod/node/localapi", "monopod/node/pressure", "monopod/node/shutdown", "monopod/internal"},
		"monopod/node/drain":                 {"monopod/manifests", "monopod/internal"},
		"monopod/node/nodemeta":              {"monopod/internal"},
		"monopod/node/shutdown":              {"monopod/internal"},
		"monopod/node/capacity":              {"monopod/internal"},
		"monopod/node/oom":                   {},
		"monopod/node/pressure":              {"monopod/manifests", "monopod/node/capacity", "monopod/node/stats", "monopod/internal"},
		"monopod/node/health":                {},
		"monopod/node/tracing":               {},
		"monopod/node/secure":                {"monopod/internal"},
		"monopod/node/kubeapi":               {"monopod/node/kubeapi", "monopod/internal"},
		"monopod/node/kubeapi/kinds":         {"monopod/node/kubeapi/metricsv1beta1", "monopod/node/kubeapi/monopodv1"},
		"monopod/node/kubeapi/health":        {},
		"monopod/node/kubeapi/request":       {"monopod/node/kubeapi/kinds"},
		"monopod/node/kubeapi/revlog":        {"monopod/node/kubeapi/kinds"},
		"monopod/node/kubeapi/access":        {"monopod/node/kubeapi/kinds", "monopod/manifests"},
		"monopod/node/kubeapi/tokens":        {"monopod/internal"},
		"monopod/node/kubeapi/authority":     {"monopod/internal", "monopod/node/localapi"},
		"monopod/node/kubeapi/listener":      {"monopod/node/kubeapi/access", "monopod/node/kubeapi/authority", "monopod/node/kubeapi/codec", "monopod/node/kubeapi/request", "monopod/node/localapi", "monopod/node/secure"},
		"monopod/node/metrics":               {"monopod/node/health", "monopod/node/stats", "monopod/internal"},
		"monopod/node/endpoints":             {"monopod/node/health", "monopod/node/localapi", "monopod/node/stats", "monopod/node/metrics", "monopod/internal"},
		"monopod/node/stats":                 {"monopod/manifests", "monopod/internal"},
		"monopod/node/why":                   {"monopod/manifests", "monopod/internal", "monopod/node/why/clue", "monopod/node/why/instance"},
		"monopod/node/why/clue":              {},
		"monopod/node/why/instance":          {},
		"monopod/internal/model":             {"monopod/manifests", "monopod/internal/cause"},
		"monopod/internal/trial":             {"monopod/manifests", "monopod/internal/cause"},
		"monopod/internal/sharing":           {"monopod/manifests", "monopod/internal/cause", "monopod/internal/model"},
		"monopod/fixture":                    {},
		"monopod/internal":                   {"monopod/internal"},
		"monopod/internal/verdict":           {"monopod/manifests", "monopod/manifests/warn", "monopod/watcher", "monopod/runner/admit", "monopod/runner/workload", "monopod/internal"},
		"monopod/internal/offline":           {"monopod/manifests", "monopod/watcher", "monopod/node", "monopod/runner/ctrd/logs", "monopod/internal"},
		"monopod/internal/logfile":           {"monopod/node", "monopod/runner/ctrd/logs", "monopod/internal"},
		"monopod/internal/podsummary":        {"monopod/manifests"},
		"monopod/internal/podtable":          {"monopod/node", "monopod/internal"},
		"monopod/internal/needs":             {"monopod/manifests", "monopod/node", "monopod/internal"},
		"monopod/internal/units":             {"monopod/node", "monopod/internal"},
		"monopod/internal/host":              {"monopod/manifests", "monopod/node", "monopod/internal"},
		"monopod/internal/program":           {"monopod/manifests", "monopod/node", "monopod/internal"},
		"monopod/internal/cli":               {"monopod/docs", "monopod/manifests", "monopod/node", "monopod/watcher", "monopod/runner", "monopod/runner/workload", "monopod/internal"},
		"monopod/docs":                       {},
		"monopod/internal/reference":         {"monopod/internal"},
		"monopod/internal/daemon":            {version.Module},
		"monopod/internal/daemontest":        {version.Module},
		"monopod/internal/dirlock":           {"monopod/internal"},
		"monopod/internal/memory":            {"monopod/internal"},
		"monopod/internal/run":               {version.Module},
		"monopod/internal/setup":             {version.Module},
		"monopod/internal/config":            {"monopod/manifests", "monopod/watcher", "monopod/runner", "monopod/runner/ctrd", "monopod/runner/spec", "monopod/node", "monopod/internal"},
		"monopod/cmd":                        {version.Module},
		"monopod/e2e":                        {version.Module},
		"monopod/examples":                   {version.Module},
	}
}

// program lists the top-level packages: packages below must not import them.
func program() []string {
	var all []string
	for _, name := range []string{"config", "verdict", "offline", "logfile", "podtable", "needs", "host", "program", "cli", "reference", "daemon", "daemontest", "run", "setup", "dirlock", "memory"} {
		all = append(all, "monopod/internal/"+name)
	}
	return all
}

func rule(path string) ([]string, bool) {
	best := ""
	rules := allowed()
	for prefix := range rules {
		if (path == prefix || strings.HasPrefix(path, prefix+"/")) && len(prefix) > len(best) {
			best = prefix
		}
	}
	return rules[best], best != ""
}

func permitted(from, to string) bool {
	list, ok := rule(from)
	if !ok {
		return false
	}
	for _, p := range list {
		exact := p == "monopod/runner" || p == "monopod/watcher" && strings.HasPrefix(from, "monopod/watcher/") || strings.HasPrefix(from, "monopod/manifests")
		if to == p || (!exact && strings.HasPrefix(to, p+"/")) || strings.HasPrefix(to, from+"/") {
			return true
		}
	}
	return false
}

func TestImportsGoOnlyDownTheArrowsOfHouseStyle(t *testing.T) {
	for _, p := range packages(t) {
		if _, ok := rule(p.ImportPath); !ok {
			t.Errorf("%s has no import rule: add one to allowed()", p.ImportPath)
		}
		for _, to := range p.Imports {
			if strings.HasPrefix(to, "monopod/cmd") {
				t.Errorf("%s imports %s: nothing imports cmd", p.ImportPath, to)
			}
			if within(to, program()) && !within(p.ImportPath, append(program(), "monopod/cmd", "monopod/e2e", "monopod/examples")) {
				t.Errorf("%s imports %s, which is the program around it", p.ImportPath, to)
			}
			if (to == version.Module || strings.HasPrefix(to, version.Module+"/")) && !permitted(p.ImportPath, to) {
				t.Errorf("%s may not import %s", p.ImportPath, to)
			}
		}
	}
}

func TestEachOutsideLibraryStaysWhereItBelongs(t *testing.T) {
	homes := []struct {
		library, reason string
		homes           []string
	}{
		{"github.com/containerd/", "containerd stays below runner/ctrd", []string{"monopod/runner/ctrd", "monopod/e2e"}},
		{"github.com/vishvananda/", "netlink stays below runner/ctrd", []string{"monopod/runner/ctrd", "monopod/e2e"}},
		{"github.com/fsnotify/", "only what watches files watches files", []string{"monopod/watcher", "monopod/runner/ctrd/image", "monopod/runner/ctrd/logs"}},
		{"aead.dev/", "one package knows signatures", []string{"monopod/watcher/signature"}},
		{"k8s.io/client-go", "the API server is an add-on of node; objects has its jsonpath only", []string{"monopod/node/apiserver", "monopod/internal/objects", "monopod/e2e/apiclient"}},
		{"go.opentelemetry.io/otel", "one package makes spans", []string{"monopod/node/tracing"}},
		{"github.com/spf13/", "the command line belongs to cmd", append(program(), "monopod/cmd")},
		{"github.com/knadh/", "one package reads the configuration", []string{"monopod/internal/config"}},
	}
	for _, p := range packages(t) {
		for _, h := range homes {
			for _, to := range p.Imports {
				if strings.HasPrefix(to, h.library) && !within(p.ImportPath, h.homes) {
					t.Errorf("%s imports %s: %s", p.ImportPath, to, h.reason)
				}
			}
		}
	}
}

func within(path string, homes []string) bool {
	for _, h := range homes {
		if path == h || strings.HasPrefix(path, h+"/") {
			return true
		}
	}
	return false
}

// TestSharedValuesAreDefinedOnce: types that packages exchange are defined only in manifests and internal/model. The exceptions use such a
// name for another concept: arguments of a single function, and configuration keys.
func TestSharedValuesAreDefinedOnce(t *testing.T) {
	homes := map[string][]string{
		"Desired": {"internal/model", "runner/ctrd/network/repair"},
		"Input":   {"internal/model", "manifests/warn", "runner/admit", "runner/podstatus", "runner/spec", "runner/workload"},
		"Probe":   {"internal/model"}, "Pull": {"internal/model"}, "Place": {"internal/model"},
		"Key": {"manifests", "internal/config"},
	}
	eachProductFile(t, func(file string, _ *token.FileSet, f *ast.File) {
		for _, d := range f.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.TYPE {
				continue
			}
			for _, s := range decl.Specs {
				name := s.(*ast.TypeSpec).Name.Name
				if in, shared := homes[name]; shared && !slices.Contains(in, path.Dir(file)) {
					t.Errorf("%s defines %s: use that of %s", file, name, in[0])
				}
			}
		}
	})
}

func TestEachPackageSaysWhatItOwns(t *testing.T) {
	for _, p := range packages(t) {
		if strings.TrimSpace(p.Doc) == "" {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}

// TestClientCommandsLinkNoRuntime keeps the programs that test them small.
func TestClientCommandsLinkNoRuntime(t *testing.T) {
	imports := map[string][]string{}
	for _, p := range packages(t) {
		imports[p.ImportPath] = p.Imports
	}
	for name := range imports {
		if !strings.HasPrefix(name, "monopod/internal/cli") {
			continue
		}
		linked := []string{name}
		for i := 0; i < len(linked); i++ {
			for _, to := range imports[linked[i]] {
				if !slices.Contains(linked, to) {
					linked = append(linked, to)
				}
			}
		}
		for _, heavy := range []string{"monopod/internal/daemon", "monopod/runner/ctrd"} {
			if slices.Contains(linked, heavy) {
				t.Errorf("%s links %s", name, heavy)
			}
		}
	}
}
