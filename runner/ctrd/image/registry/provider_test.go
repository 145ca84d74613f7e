package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"monopod/runner/ctrd/image/registrytest"
)

func plugins(t *testing.T, config string, programs map[string]string) (p *Providers, dir string) {
	t.Helper()
	file, dir := registrytest.Plugins(t, config, programs)
	return NewProviders(file, dir, slog.New(slog.DiscardHandler)), dir
}

func users(t *testing.T, p *Providers, image string) string {
	t.Helper()
	logins, err := p.Logins(t.Context(), image)
	var all []string
	for i := range logins {
		if logins[i].matches(image) {
			all = append(all, logins[i].User)
		}
	}
	if err != nil {
		all = append(all, "error: "+err.Error())
	}
	return strings.Join(all, " ")
}

func TestPluginsAreAskedAsAKubeletAsksThem(t *testing.T) {
	p, dir := plugins(t, registrytest.ProvidersHead+
		registrytest.Entry("first", "*.example.com/team", `, args: [--a, b], env: [{name: EXTRA, value: more}]`)+
		registrytest.Entry("second", "r.example.com", "")+
		registrytest.Entry("needs-account", "r.example.com", `, tokenAttributes: {serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: true}`)+
		registrytest.Entry("may-have-account", "r.example.com", `, tokenAttributes: {serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: false}`), map[string]string{
		"first": registrytest.Answering("Image", "", "r.example.com", "r.example.com/team/app", "*.other.com"), "second": registrytest.Answering("Registry", "", "*.example.com"),
		"needs-account": "exit 1", "may-have-account": registrytest.Answering("Global", "", "other.com"),
	})
	if got, want := users(t, p, "r.example.com/team/app:1"), "user-of-r.example.com/team/app user-of-r.example.com user-of-*.example.com"; got != want {
		t.Errorf("logins: %q, want %q", got, want)
	}
	request := `{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"r.example.com/team/app","kind":"CredentialProviderRequest"}`
	if got, want := registrytest.Asked(t, dir), request+"first --a b more\n"+request+"second\n"+request+"may-have-account\n"; strings.ReplaceAll(strings.ReplaceAll(got, " \n", "\n"), " \n", "\n") != want {
		t.Errorf("asked:\n%s\nwant:\n%s", got, want)
	}
	if got := users(t, p, "elsewhere.org/x:1"); got != "" {
		t.Errorf("an image of nobody: %q", got)
	}
	if got := users(t, nil, "r.example.com/x"); got != "" {
		t.Errorf("no plug-ins: %q", got)
	}
}

// TestTheLoginsOfOtherRegistriesAreShownToNone: a plug-in may answer with more than was asked.
func TestTheLoginsOfOtherRegistriesAreShownToNone(t *testing.T) {
	l := registrytest.New(t)
	l.Push(t, l.Host+"/fleet/pods:1", registrytest.Layer{MediaType: "application/yaml", Data: []byte("a: 1\n")})
	var shown sync.Map
	before := func(w http.ResponseWriter, r *http.Request) bool {
		user, _, ok := r.BasicAuth()
		if !ok {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		shown.Store(user, true)
		return false
	}
	l.Before.Store(&before)
	p, _ := plugins(t, registrytest.ProvidersHead+registrytest.Entry("p", l.Host, ""), map[string]string{"p": registrytest.Answering("Image", "", "a.much.longer.registry.example.com:5000/fleet", l.Host)})
	a := NewArtifacts(Access{Providers: p})
	_, err := fetch(t, a, l.Host+"/fleet/pods:1", "", 100)
	must(t, err)
	shown.Range(func(user, _ any) bool {
		if user != "user-of-127.0.0.1" { // what comes after a colon is the password
			t.Errorf("%v is shown", user)
		}
		return true
	})
}

func TestWhatPluginsSayIsKeptAsTheySay(t *testing.T) {
	for name, c := range map[string]struct {
		key, duration string
		images        []string
		wait          time.Duration
		want          int
	}{
		"by image":                 {"Image", "", []string{"r.io/a:1", "r.io/a:2", "r.io/a@sha256:" + strings.Repeat("0", 64), "r.io/b:1"}, 0, 2},
		"by registry":              {"Registry", "", []string{"r.io/a:1", "r.io/b:1", "s.io/a:1"}, 0, 2},
		"for all":                  {"Global", "", []string{"r.io/a:1", "r.io/b:1", "s.io/a:1"}, 0, 1},
		"not at all":               {"Global", "0s", []string{"r.io/a:1", "r.io/a:1"}, 0, 2},
		"shorter than the default": {"Global", "1m", []string{"r.io/a:1", "r.io/a:1"}, 2 * time.Minute, 2},
		"longer than the default":  {"Global", "5h", []string{"r.io/a:1", "r.io/a:1"}, 2 * time.Hour, 1},
		"as long as the default":   {"Global", "", []string{"r.io/a:1", "r.io/a:1"}, 61 * time.Minute, 2},
	} {
		t.Run(name, func(t *testing.T) {
			p, dir := plugins(t, registrytest.ProvidersHead+registrytest.Entry("p", "*.io", ""), map[string]string{"p": registrytest.Answering(c.key, c.duration, "*.io")})
			for _, img := range c.images {
				if got := users(t, p, img); got != "user-of-*.io" {
					t.Errorf("%s: %q", img, got)
				}
				p.mu.Lock()
				for key, kept := range p.Cache { // as if the time had passed
					kept.until = kept.until.Add(-c.wait)
					p.Cache[key] = kept
				}
				p.mu.Unlock()
			}
			if n := strings.Count(registrytest.Asked(t, dir), "CredentialProviderRequest"); n != c.want {
				t.Errorf("asked %d times, want %d", n, c.want)
			}
		})
	}
}

func TestPluginsOfEarlierVersionsAreAskedInTheirs(t *testing.T) {
	for _, version := range []string{"v1beta1", "v1alpha1"} {
		config := strings.ReplaceAll(registrytest.ProvidersHead+registrytest.Entry("p", "r.io", ""), "k8s.io/v1", "k8s.io/"+version)
		p, dir := plugins(t, config, map[string]string{"p": strings.ReplaceAll(registrytest.Answering("Image", "", "r.io"), "k8s.io/v1", "k8s.io/"+version)})
		if got := users(t, p, "r.io/a:1"); got != "user-of-r.io" || !strings.Contains(registrytest.Asked(t, dir), `"apiVersion":"credentialprovider.kubelet.k8s.io/`+version+`"`) {
			t.Errorf("%s: %q, asked %s", version, got, registrytest.Asked(t, dir))
		}
		p, _ = plugins(t, config, map[string]string{"p": registrytest.Answering("Image", "", "r.io")})
		if got := users(t, p, "r.io/a:1"); !strings.Contains(got, "credentialprovider.kubelet.k8s.io/v1\", not a") {
			t.Errorf("%s, answered in v1: %q", version, got)
		}
	}
}

func TestPluginsThatFailSayWhyAndShowNoSecrets(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"fails":              {"echo the cloud is down >&2; exit 3", "exit status 3: the cloud is down"},
		"no JSON":            {"echo hunter2", "its answer is not JSON"},
		"another kind":       {`echo '{"apiVersion": "v1", "kind": "Secret", "data": "hunter2"}'`, `its answer is a "Secret" of "v1"`},
		"another cache type": {registrytest.Answering("Planet", "", "hunter2"), `cacheKeyType "Planet"`},
		"is not there":       {"", "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			programs := map[string]string{"good": registrytest.Answering("Image", "", "r.io")}
			if c.body != "" {
				programs["bad"] = c.body
			}
			p, _ := plugins(t, registrytest.ProvidersHead+registrytest.Entry("bad", "r.io", "")+registrytest.Entry("good", "r.io", ""), programs)
			got := users(t, p, "r.io/a:1")
			if !strings.HasPrefix(got, "user-of-r.io error: credential provider bad: ") || !strings.Contains(got, c.want) || strings.Contains(got, "hunter2") {
				t.Errorf("%q", got)
			}
		})
	}
}

// TestNobodyWaitsForAPluginLongerThanHeMust checks that a cancelled caller returns at once, and that a caller that waited for a timeout does not
// start another one.
func TestNobodyWaitsForAPluginLongerThanHeMust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := plugins(t, registrytest.ProvidersHead+registrytest.Entry("p", "r.io", ""), nil)
		var mu sync.Mutex
		asked := 0
		p.run = func(ctx context.Context, _ *provider, _ string) (*providerAnswer, error) {
			mu.Lock()
			asked++
			mu.Unlock()
			ctx, cancel := context.WithTimeoutCause(ctx, providerTimeout, errTimeout)
			defer cancel()
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		began, gone := time.Now(), errors.New("the pod is gone")
		leaving, leave := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { leave(gone) })
		var all sync.WaitGroup
		ask := func(ctx context.Context, image string, want error, after time.Duration) {
			all.Go(func() {
				if _, err := p.Logins(ctx, image); !errors.Is(err, want) || time.Since(began) != after {
					t.Errorf("%s: %v after %s, want %v after %s", image, err, time.Since(began), want, after)
				}
			})
			synctest.Wait()
		}
		ask(t.Context(), "r.io/first", errTimeout, time.Minute)
		for _, image := range []string{"r.io/a", "r.io/b"} {
			ask(t.Context(), image, errTimeout, time.Minute)
		}
		ask(leaving, "r.io/deleted", gone, time.Second)
		all.Wait()
		if asked != 1 {
			t.Errorf("it was asked %d times at once", asked)
		}
		began = time.Now()
		ask(t.Context(), "r.io/a", errTimeout, time.Minute)
		all.Wait()
		if asked != 2 {
			t.Errorf("afterwards it was asked %d times, want 1", asked-1)
		}
	})
}

// TestAPluginEndsWithWhoAsks, and that is not said to be silence.
func TestAPluginEndsWithWhoAsks(t *testing.T) {
	p, dir := plugins(t, registrytest.ProvidersHead+registrytest.Entry("p", "r.io", ""), map[string]string{"p": "exec sleep 1000"})
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the pod is gone")
	done := make(chan error, 1)
	go func() { _, err := p.Logins(ctx, "r.io/a"); done <- err }()
	for registrytest.Asked(t, dir) == "" {
		runtime.Gosched()
	}
	cancel(gone)
	if err := <-done; !errors.Is(err, gone) {
		t.Error(err)
	}
}

func TestConfigurationsOfPluginsAreChecked(t *testing.T) {
	for name, c := range map[string]struct{ config, want string }{
		"good":             {registrytest.ProvidersHead + registrytest.Entry("p", "r.io", ""), ""},
		"another document": {"apiVersion: v1\nkind: Secret\n", "it is a Secret of v1, not a CredentialProviderConfig"},
		"unknown field":    {registrytest.ProvidersHead + registrytest.Entry("p", "r.io", ", matchImage: [x]"), "matchImage"},
		"a path":           {registrytest.ProvidersHead + registrytest.Entry("../p", "r.io", ""), "is not the name of a program"},
		"twice":            {registrytest.ProvidersHead + registrytest.Entry("p", "r.io", "") + registrytest.Entry("p", "s.io", ""), "p is listed twice"},
		"old API":          {registrytest.ProvidersHead + "- {name: p, matchImages: [r.io], defaultCacheDuration: 1h, apiVersion: credentialprovider.kubelet.k8s.io/v1alpha1}\n", ""},
		"unknown API":      {registrytest.ProvidersHead + "- {name: p, matchImages: [r.io], defaultCacheDuration: 1h, apiVersion: credentialprovider.kubelet.k8s.io/v2}\n", "/v2"},
		"matches nothing":  {registrytest.ProvidersHead + "- {name: p, defaultCacheDuration: 1h, apiVersion: credentialprovider.kubelet.k8s.io/v1}\n", "matchImages is missing"},
		"no duration":      {registrytest.ProvidersHead + "- {name: p, matchImages: [r.io], apiVersion: credentialprovider.kubelet.k8s.io/v1}\n", "defaultCacheDuration"},
		"no program":       {registrytest.ProvidersHead + registrytest.Entry("config.yaml", "r.io", ""), "is not a program"},
		"not there yet":    {registrytest.ProvidersHead + registrytest.Entry("q", "r.io", ""), "q: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			_, dir := plugins(t, c.config, map[string]string{"p": "true"})
			wrong, missing := CheckProviders(filepath.Join(dir, "config.yaml"), dir)
			if later := strings.Contains(c.want, "no such file"); later != (missing != nil) || later && wrong != nil {
				t.Errorf("wrong: %v; missing: %v", wrong, missing)
			}
			err := errors.Join(wrong, missing)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestAMistakeInTheConfigurationIsToldOnceAndCorrectedWhileWeRun: a pull that needs no plug-in does not say it.
func TestAMistakeInTheConfigurationIsToldOnceAndCorrectedWhileWeRun(t *testing.T) {
	p, dir := plugins(t, "", map[string]string{"p": registrytest.Answering("Image", "", "r.io")})
	var log strings.Builder
	p.log = slog.New(slog.NewTextHandler(&log, nil))
	file := filepath.Join(dir, "config.yaml")
	for _, c := range []struct {
		config, want string
		// logged is how many lines there are afterwards.
		logged int
	}{
		{"providers: [", "error: credential providers " + file + ": ", 1},
		{"providers: [", "error: credential providers " + file + ": ", 1},
		{registrytest.ProvidersHead + registrytest.Entry("p", "r.io", ", matchImage: [x]"), `unknown field "matchImage"`, 2},
		{"", "error: credential providers: open " + file + ": no such file or directory", 3},
		{registrytest.ProvidersHead + registrytest.Entry("p", "r.io", ""), "user-of-r.io", 4},
		{registrytest.ProvidersHead + registrytest.Entry("p", "r.io", ""), "user-of-r.io", 4},
	} {
		if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if c.config != "" {
			if err := os.WriteFile(file, []byte(c.config), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := users(t, p, "r.io/a:1"); !strings.Contains(got, c.want) {
			t.Errorf("%q: %q, want %q", c.config, got, c.want)
		}
		if got := strings.Count(log.String(), "\n"); got != c.logged {
			t.Errorf("%q: %d lines, want %d:\n%s", c.config, got, c.logged, log.String())
		}
	}
}

func TestCredentialHelpersOfTheDockerConfigAreAsked(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for name, user := range map[string]string{"store": "everybody", "special": "special", "token": "<token>"} {
		script := fmt.Sprintf("#!/bin/sh\n[ \"$1\" = get ] || exit 1\nread server\ncase $server in unknown*) echo credentials not found in native keychain; exit 1;; esac\nprintf '{\"ServerURL\": \"%%s\", \"Username\": %q, \"Secret\": \"pw of %%s\"}' \"$server\" \"$server\"\n", user)
		if err := os.WriteFile(filepath.Join(dir, "docker-credential-"+name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "config.json")
	if err := os.WriteFile(file, []byte(`{"credsStore": "store", "credHelpers": {"r.io": "special", "t.io": "token"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]string{
		"r.io": "special/pw of r.io", "elsewhere:5000": "everybody/pw of elsewhere:5000", "t.io": "/pw of t.io", "unknown.io": "/",
		"docker.io": "everybody/pw of https://index.docker.io/v1/",
	} {
		user, secret, err := credentials(t.Context(), file, host)
		if got := user + "/" + secret; err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", host, got, err, want)
		}
	}
	if err := os.WriteFile(file, []byte(`{"credsStore": "missing"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := credentials(t.Context(), file, "r.io"); err == nil || !strings.Contains(err.Error(), "docker-credential-missing") {
		t.Errorf("a helper that is not there: %v", err)
	}
}

func TestWhoDoesNotAnswerIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		if _, err := withTimeout(t.Context(), helperTimeout, func() (int, error) { <-never; return 0, nil }); err == nil || err.Error() != "no answer for 1m0s" {
			t.Error(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("the pod is gone")
		time.AfterFunc(time.Second, func() { cancel(gone) })
		began := time.Now()
		if _, err := withTimeout(ctx, helperTimeout, func() (int, error) { <-never; return 0, nil }); !errors.Is(err, gone) || time.Since(began) != time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		close(never)
		synctest.Wait()
	})
}

func TestLimitsOfPulls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(Limits{Parallel: 2, QPS: 1, Burst: 3})
		began := time.Now()
		var overs []func()
		for range 2 {
			over, err := l.begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			overs = append(overs, over)
		}
		third := make(chan time.Duration, 1)
		go func() {
			over, err := l.begin(t.Context())
			if err == nil {
				defer over()
			}
			third <- time.Since(began)
		}()
		time.Sleep(time.Minute)
		overs[0]()
		if at := <-third; at != time.Minute {
			t.Errorf("the third began after %s", at)
		}
		overs[1]()
		synctest.Wait()
		again := time.Now()
		for range 4 { // two of three are left, then one a second
			over, err := l.begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			over()
		}
		if took := time.Since(again); took != 2*time.Second {
			t.Errorf("four began within %s", took)
		}
		if over, err := newLimiter(Limits{}).begin(t.Context()); err != nil {
			t.Error(err)
		} else {
			over()
		}
	})
}
