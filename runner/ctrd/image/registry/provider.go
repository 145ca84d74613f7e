package registry

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"monopod/internal/regular"
)

const (
	providerConfigAPI  = "kubelet.config.k8s.io/v1"
	providerConfigKind = "CredentialProviderConfig"
	providerAPI        = "credentialprovider.kubelet.k8s.io/v1"
	providerRequest    = "CredentialProviderRequest"
	providerResponse   = "CredentialProviderResponse"
)

const (
	// providerPatience is how long a plug-in may take.
	providerPatience = time.Minute
	// maxProviderOutput is the longest answer of one, in bytes.
	maxProviderOutput = 1 << 20
)

// providerConfig is a kubelet's CredentialProviderConfig.
type providerConfig struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Providers  []provider `json:"providers"`
}

// provider is an entry of it.
type provider struct {
	Name                 string           `json:"name"`
	MatchImages          []string         `json:"matchImages"`
	DefaultCacheDuration *metav1.Duration `json:"defaultCacheDuration"`
	APIVersion           string           `json:"apiVersion"`
	Args                 []string         `json:"args,omitempty"`
	Env                  []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"env,omitempty"`
	// TokenAttributes are for plug-ins that want a token of the pod's service account, which there is none of here.
	TokenAttributes *struct {
		ServiceAccountTokenAudience          string   `json:"serviceAccountTokenAudience"`
		CacheType                            string   `json:"cacheType"`
		RequireServiceAccount                *bool    `json:"requireServiceAccount"`
		RequiredServiceAccountAnnotationKeys []string `json:"requiredServiceAccountAnnotationKeys,omitempty"`
		OptionalServiceAccountAnnotationKeys []string `json:"optionalServiceAccountAnnotationKeys,omitempty"`
	} `json:"tokenAttributes,omitempty"`
}

// Providers are a kubelet's credential provider plug-ins: programs that are asked for logins when an image is pulled. A nil
// one has none.
type Providers struct {
	file, binDir string
	log          *slog.Logger
	// run executes a plug-in.
	run func(ctx context.Context, p *provider, repository string) (*providerAnswer, error)

	mu sync.Mutex
	// turns are those of the plug-ins, by name.
	turns map[string]*turn
	Cache map[CacheKey]CachedLogins
	// said is what was wrong with the file when it was read last.
	said string
}

// turn has one after the other ask a plug-in, so that what it says is asked for once.
type turn struct {
	// taken is full while somebody asks.
	taken chan struct{}
	// silent is when the plug-in has last not answered in time. It belongs to who asks.
	silent time.Time
}

// CacheKey is what logins are good for: an image, a registry or all images of a plug-in.
type CacheKey struct{ provider, kind, of string }

// CachedLogins are the logins that a plug-in returned, and until when they hold.
type CachedLogins struct {
	logins []Login
	until  time.Time
}

// NewProviders returns the plug-ins that file, a CredentialProviderConfig, describes, and that are in binDir; nil without
// a file. It does no I/O.
func NewProviders(file, binDir string, log *slog.Logger) *Providers {
	if file == "" {
		return nil
	}
	ps := &Providers{file: file, binDir: binDir, log: log, turns: map[string]*turn{}, Cache: map[CacheKey]CachedLogins{}}
	ps.run = ps.execute
	return ps
}

// CheckProviders says what is wrong with the file and its plug-ins, and which of these are not there, which may come later.
func CheckProviders(file, binDir string) (wrong, missing error) {
	conf, err := readProviders(file)
	if err != nil {
		return err, nil
	}
	var bad, absent []error
	for i := range conf.Providers {
		path := filepath.Join(binDir, conf.Providers[i].Name)
		switch info, err := os.Stat(path); {
		case errors.Is(err, fs.ErrNotExist):
			absent = append(absent, fmt.Errorf("credential provider %s: %w", conf.Providers[i].Name, err))
		case err != nil:
			bad = append(bad, fmt.Errorf("credential provider %s: %w", conf.Providers[i].Name, err))
		case info.Mode()&0o111 == 0 || !info.Mode().IsRegular():
			bad = append(bad, fmt.Errorf("credential provider %s: %s is not a program", conf.Providers[i].Name, path))
		}
	}
	return errors.Join(bad...), errors.Join(absent...)
}

func readProviders(file string) (*providerConfig, error) {
	b, err := regular.ReadFile(file, maxConfigFile)
	if err != nil {
		return nil, fmt.Errorf("credential providers: %w", err)
	}
	conf := &providerConfig{}
	if err := yaml.UnmarshalStrict(b, conf); err != nil {
		return nil, fmt.Errorf("credential providers %s: %w", file, err)
	}
	if conf.Kind != providerConfigKind || !isVersionOf(conf.APIVersion, providerConfigAPI) {
		return nil, fmt.Errorf("credential providers %s: it is a %s of %s, not a %s of %s", file, cmp.Or(conf.Kind, "document without kind"), cmp.Or(conf.APIVersion, "no apiVersion"), providerConfigKind, providerConfigAPI)
	}
	seen := map[string]bool{}
	var errs []error
	for i := range conf.Providers {
		p := &conf.Providers[i]
		if err := p.check(); err != nil {
			errs = append(errs, fmt.Errorf("credential providers %s: providers[%d]: %w", file, i, err))
		}
		if seen[p.Name] {
			errs = append(errs, fmt.Errorf("credential providers %s: providers[%d]: %s is there twice", file, i, p.Name))
		}
		seen[p.Name] = true
	}
	return conf, errors.Join(errs...)
}

// isVersionOf says that a version is v1, v1beta1 or v1alpha1 of an API, all of which have the same fields.
func isVersionOf(version, v1 string) bool {
	return version == v1 || version == v1+"beta1" || version == v1+"alpha1"
}

func (p *provider) check() error {
	switch {
	case p.Name == "" || strings.ContainsAny(p.Name, "/ ") || p.Name == "." || p.Name == "..":
		return fmt.Errorf("%q is not the name of a program", p.Name)
	case len(p.MatchImages) == 0:
		return errors.New("matchImages is missing")
	case p.DefaultCacheDuration == nil || p.DefaultCacheDuration.Duration < 0:
		return errors.New("defaultCacheDuration is missing, or less than 0s")
	case !isVersionOf(p.APIVersion, providerAPI):
		return fmt.Errorf("apiVersion %q is not %s", p.APIVersion, providerAPI)
	}
	return nil
}

// Logins asks the plug-ins that are for an image, a normalised name. What fails is no reason not to take what others say. When
// ctx ends, so does waiting, with its cause.
func (ps *Providers) Logins(ctx context.Context, name string) ([]Login, error) {
	if ps == nil {
		return nil, nil
	}
	conf, err := readProviders(ps.file)
	ps.tell(err)
	if err != nil {
		return nil, err
	}
	repository := name
	if named, err := reference.ParseNormalizedNamed(name); err == nil {
		repository = reference.TrimNamed(named).String()
	}
	var all []Login
	var errs []error
	for i := range conf.Providers {
		p := &conf.Providers[i]
		if !p.isFor(repository) {
			continue
		}
		logins, err := ps.ask(ctx, p, repository)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("credential provider %s: %w", p.Name, err))
			ps.log.Warn("no credentials of a provider", "provider", p.Name, "image", repository, "err", err)
		}
		all = append(all, logins...)
	}
	return all, errors.Join(errs...)
}

// tell logs a mistake in the file when it is new, and that there is none any more: a pull that succeeds without plug-ins says nothing of it.
func (ps *Providers) tell(err error) {
	said := ""
	if err != nil {
		said = err.Error()
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	switch {
	case said == ps.said:
	case err != nil:
		ps.log.Warn("no credential provider is asked", "err", err)
	default:
		ps.log.Info("credential providers are asked again", "file", ps.file)
	}
	ps.said = said
}

// isFor says that a plug-in is asked about an image.
func (p *provider) isFor(repository string) bool {
	if t := p.TokenAttributes; t != nil && t.RequireServiceAccount != nil && *t.RequireServiceAccount {
		return false // as for a kubelet's static pods
	}
	return slices.ContainsFunc(p.MatchImages, func(pattern string) bool { return Login{Pattern: patternOf(pattern)}.matches(repository) })
}

// errSilent is the end of patience with a plug-in.
var errSilent = fmt.Errorf("no answer for %s", providerPatience)

// ask returns what a plug-in says, or said lately. Who has waited while it did not answer another one waits no second time.
func (ps *Providers) ask(ctx context.Context, p *provider, repository string) ([]Login, error) {
	turn, began := ps.turnOf(p.Name), time.Now()
	select {
	case turn.taken <- struct{}{}:
		defer func() { <-turn.taken }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	host, _, _ := strings.Cut(repository, "/")
	keys := map[string]CacheKey{"Image": {p.Name, "Image", repository}, "Registry": {p.Name, "Registry", host}, "Global": {p.Name, "Global", ""}}
	if logins, ok := ps.cached(keys); ok {
		return logins, nil
	}
	if turn.silent.After(began) {
		return nil, errSilent
	}
	answer, err := ps.run(ctx, p, repository)
	if errors.Is(err, errSilent) {
		turn.silent = time.Now()
	}
	if err != nil {
		return nil, err
	}
	key, ok := keys[answer.CacheKeyType]
	if !ok {
		return nil, fmt.Errorf("its answer has the cacheKeyType %q, not Image, Registry or Global", answer.CacheKeyType)
	}
	logins := make([]Login, 0, len(answer.Auth))
	for pattern, a := range answer.Auth {
		logins = append(logins, Login{Pattern: patternOf(pattern), User: a.Username, Password: a.Password})
	}
	slices.SortFunc(logins, func(a, b Login) int { return compareLogins(&a, &b) })
	keep := p.DefaultCacheDuration.Duration
	if answer.CacheDuration != nil {
		keep = answer.CacheDuration.Duration
	}
	if keep > 0 {
		ps.mu.Lock()
		defer ps.mu.Unlock()
		ps.Cache[key] = CachedLogins{logins, time.Now().Add(keep)}
	}
	return logins, nil
}

func (ps *Providers) turnOf(name string) *turn {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.turns[name] == nil {
		ps.turns[name] = &turn{taken: make(chan struct{}, 1)}
	}
	return ps.turns[name]
}

// cached returns what is known and still good, and forgets what is not.
func (ps *Providers) cached(keys map[string]CacheKey) ([]Login, bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for key, c := range ps.Cache {
		if !time.Now().Before(c.until) {
			delete(ps.Cache, key)
		}
	}
	for _, key := range keys {
		if c, ok := ps.Cache[key]; ok {
			return c.logins, true
		}
	}
	return nil, false
}

// providerAnswer is a CredentialProviderResponse.
type providerAnswer struct {
	metav1.TypeMeta
	CacheKeyType  string           `json:"cacheKeyType"`
	CacheDuration *metav1.Duration `json:"cacheDuration"`
	Auth          map[string]struct {
		Username string `json:"username"`
		Password string `json:"password"`
	} `json:"auth"`
}

// execute runs a plug-in. Its answer is in no error: it has secrets.
func (ps *Providers) execute(ctx context.Context, p *provider, repository string) (*providerAnswer, error) {
	request, err := json.Marshal(map[string]string{"kind": providerRequest, "apiVersion": p.APIVersion, "image": repository})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, providerPatience, errSilent)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(ps.binDir, p.Name), p.Args...)
	cmd.Env = os.Environ()
	for _, e := range p.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	stdout, stderr := limitedBuffer{left: maxProviderOutput}, limitedBuffer{left: 4 << 10}
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = bytes.NewReader(request), &stdout, &stderr, time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.b.String()))
	}
	answer := &providerAnswer{}
	if err := json.Unmarshal(stdout.b.Bytes(), answer); err != nil {
		return nil, errors.New("its answer is not JSON")
	}
	if answer.APIVersion != p.APIVersion || answer.Kind != providerResponse {
		return nil, fmt.Errorf("its answer is a %q of %q, not a %s of %s", answer.Kind, answer.APIVersion, providerResponse, p.APIVersion)
	}
	return answer, nil
}

// limitedBuffer keeps the beginning of what is written.
type limitedBuffer struct {
	b    bytes.Buffer
	left int
}

// Write implements io.Writer.
func (l *limitedBuffer) Write(p []byte) (int, error) {
	n := min(len(p), l.left)
	l.left -= n
	l.b.Write(p[:n])
	return len(p), nil
}
