// Package sources creates the configured sources of manifests: directory, URLs, registries, applied objects.
//
// It must not read them, which the watcher does, nor decide about pods. It starts no goroutines.
package sources

import (
	"cmp"
	"log/slog"
	"slices"
	"time"

	"monopod/internal/config"
	"monopod/internal/memory"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/manifests/policy"
	"monopod/watcher"
	"monopod/watcher/applied"
	"monopod/watcher/fetch"
	"monopod/watcher/file"
)

// Deps is what sources need besides the configuration.
type Deps struct {
	Log *slog.Logger
	// Applied stores the applied objects.
	Applied *applied.Store
	// Bound is the source of pods bound by an API server; nil: there is none.
	Bound watcher.Source
	// Aside is how long pods stay whose file is renamed to a name that is not read; 0: the default of package file.
	Aside time.Duration
}

// New returns the configured sources by precedence.
func New(cfg *config.Loaded, d Deps) []watcher.Source {
	all := remote(cfg, d.Log)
	if cfg.StaticPodPath != "" {
		all = append(all, file.New(file.Config{
			Path: cfg.StaticPodPath, CheckFrequency: cfg.FileCheckFrequency, Load: Loader(config.SourceFile, cfg.Policy(config.SourceFile)), Log: d.Log, Aside: d.Aside,
		}))
	}
	if cfg.StaticPodURL != "" {
		all = append(all, fetch.NewHTTPSource(fetch.HTTPConfig{
			URL: cfg.StaticPodURL, Header: cfg.StaticPodURLHeader, CheckFrequency: cfg.HTTPCheckFrequency,
			Load: PartialLoader(config.SourceHTTP, cfg.Policy(config.SourceHTTP)), Log: d.Log,
			Copy: cfg.CopyOf(config.SourceHTTP),
		}))
	}
	all = append(all, Applied(cfg, d))
	if d.Bound != nil {
		all = append(all, d.Bound)
	}
	order := cfg.SourceNames()
	slices.SortStableFunc(all, func(x, y watcher.Source) int {
		return cmp.Compare(slices.Index(order, x.Name()), slices.Index(order, y.Name()))
	})
	return all
}

// Applied returns the source of the applied objects.
func Applied(cfg *config.Loaded, d Deps) watcher.Source {
	return file.New(file.Config{
		Name: config.SourceApplied, Path: d.Applied.Dir(), CheckFrequency: cfg.FileCheckFrequency, Whole: d.Applied.Whole(),
		Load: AppliedLoader(cfg.Policy(config.SourceApplied)), Log: d.Log,
	})
}

// Loader decodes the inputs of a source; one invalid object refuses its whole input.
func Loader(source string, policy policy.Policy) watcher.Loader {
	return func(input string, data []byte) (*manifests.Content, error) {
		defer memory.AfterInput(len(data))
		return decode.All(input, data, options(source, policy))
	}
}

// AppliedLoader decodes applied objects, including their server-set metadata.
func AppliedLoader(policy policy.Policy) watcher.Loader {
	return func(input string, data []byte) (*manifests.Content, error) {
		note, _ := applied.Split(data)
		c, err := Loader(config.SourceApplied, applied.Policy(policy, note))(input, data)
		if err == nil {
			applied.Give(note, c)
		}
		return c, err
	}
}

// PartialLoader decodes the inputs of a source whose valid objects are accepted beside invalid ones.
func PartialLoader(source string, policy policy.Policy) watcher.Loader {
	return func(input string, data []byte) (*manifests.Content, error) {
		defer memory.AfterInput(len(data))
		return decode.Parts(input, data, options(source, policy))
	}
}

func options(source string, policy policy.Policy) decode.Options {
	author := decode.AuthorUser
	if source == config.SourceAPIServer {
		author = decode.AuthorAPIServer
	}
	return decode.Options{Source: source, Policy: policy, Author: author}
}
