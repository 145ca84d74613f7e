package config

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"monopod/internal/printer"
	"monopod/internal/quantity"
	"monopod/node/secure"
	"monopod/runner/ctrd/image/gc"
	"monopod/runner/ctrd/image/registry"
)

// imageKeys are the keys about pulling and removing images.
func imageKeys() []Key {
	return []Key{
		{Path: "preloadDirectories", Kind: kindPaths, doc: "Directories with OCI or docker image archives, imported at startup and when they change. Images are not removed while their archive exists."},
		{Path: "registryConfig", Kind: kindPath, derived: "`config.json` in `rootDirectory`", doc: "File with registry credentials, in the format of docker's `config.json`. It may be missing."},
		{Path: "registryHostsDirs", Kind: kindPaths, def: []string{"/etc/monopod/certs.d", "/etc/containerd/certs.d"}, doc: "Directories with one directory per registry, like containerd's `certs.d`: a `hosts.toml` with mirrors, addresses and certificates, or certificates alone (`ca.crt`, `client.cert` with `client.key`). The first directory that has an entry for a registry, or `_default`, is used. They are read at each pull."},
		{Path: "imageCredentialProviderConfig", Kind: kindPath, doc: "File with a `CredentialProviderConfig` (kubelet.config.k8s.io/v1): the plug-ins that provide registry credentials. It is read at each pull; a mistake in it disables only these plug-ins."},
		{Path: "imageCredentialProviderBinDir", Kind: kindPath, derived: "the directory of `imageCredentialProviderConfig`", doc: "Directory with the programs of these plug-ins."},
		{Path: "serializeImagePulls", Kind: kindBool, def: false, doc: "Whether images are pulled one at a time."},
		{Path: "maxParallelImagePulls", Kind: kindInt, def: int64(0), doc: "Maximum number of concurrent image pulls; further ones wait. 0: no limit."},
		{Path: "registryPullQPS", Kind: kindInt, def: int64(5), doc: "Maximum number of pulls started per second; further ones wait. 0: no limit."},
		{Path: "registryBurst", Kind: kindInt, def: int64(10), doc: "Maximum burst of pulls above `registryPullQPS`."},
		{Path: "imagePullBandwidth", Kind: kindString, doc: "Bandwidth limit of all pulls together, in bytes per second, as `2Mi`. Empty: no limit."},
		{Path: "imagePolicy", Kind: kindRules, doc: "Rules that define which images may be used and who must have signed them; the first matching rule applies. If there are rules, an image that matches none is refused; running containers keep running. See `monopod docs images`."},
		{Path: "imageGCHighThresholdPercent", Kind: kindInt, def: int64(85), doc: "Usage of the image file system, in percent, above which unused images are removed. 100: never because of disk usage."},
		{Path: "imageGCLowThresholdPercent", Kind: kindInt, def: int64(80), doc: "Usage of the image file system, in percent, down to which unused images are removed."},
		{Path: "imageMinimumGCAge", Kind: kindDuration, def: 2 * time.Minute, doc: "Minimum age of an unused image before it is removed."},
		{Path: "imageMaximumGCAge", Kind: kindDuration, def: time.Duration(0), doc: "Time after which an unused image is removed regardless of disk usage. 0s: never."},
	}
}

// images checks the keys about images.
func (c *configCheck) images(cfg *Config) {
	high, low := cfg.ImageGCHighThresholdPercent, cfg.ImageGCLowThresholdPercent
	for _, p := range []struct {
		key   string
		value int
	}{{"imageGCHighThresholdPercent", high}, {"imageGCLowThresholdPercent", low}} {
		if p.value < 0 || p.value > 100 {
			c.add(p.key, fmt.Sprintf("%d is not between 0 and 100", p.value), "it is a percentage")
		}
	}
	c.pulls(cfg)
	c.imageRules(cfg)
	if low >= high {
		c.add("imageGCLowThresholdPercent", fmt.Sprintf("%d is not less than imageGCHighThresholdPercent, which is %d", low, high), "")
	}
	if cfg.ImageMinimumGCAge < 0 {
		c.add("imageMinimumGCAge", DurationText(cfg.ImageMinimumGCAge)+" is less than 0s", "")
	}
	if cfg.ImageMaximumGCAge != 0 && cfg.ImageMaximumGCAge <= cfg.ImageMinimumGCAge {
		c.add("imageMaximumGCAge", fmt.Sprintf("%s is not more than imageMinimumGCAge, which is %s", DurationText(cfg.ImageMaximumGCAge), DurationText(cfg.ImageMinimumGCAge)), "0s disables it")
	}
}

// pulls checks the keys about pulling.
func (c *configCheck) pulls(cfg *Config) {
	for _, n := range []struct {
		key   string
		value int
	}{{"maxParallelImagePulls", cfg.MaxParallelImagePulls}, {"registryPullQPS", cfg.RegistryPullQPS}, {"registryBurst", cfg.RegistryBurst}} {
		if n.value < 0 {
			c.add(n.key, fmt.Sprintf("%d is less than 0", n.value), "0 is no limit")
		}
	}
	if cfg.SerializeImagePulls && cfg.MaxParallelImagePulls > 1 {
		c.add("maxParallelImagePulls", fmt.Sprintf("%d pulls at once contradict serializeImagePulls", cfg.MaxParallelImagePulls), "set serializeImagePulls: false")
	}
	if q, err := quantity.Parse(cfg.ImagePullBandwidth); cfg.ImagePullBandwidth != "" && (err != nil || q.Value() < 1024) {
		c.add("imagePullBandwidth", fmt.Sprintf("%q is not a number of bytes, at least 1Ki", cfg.ImagePullBandwidth), "write it as 512Ki or 2Mi")
	}
}

// ProviderFaults checks files that are read only when they are needed: the configuration of credential provider plug-ins, tokens and
// authorities. It returns their problems, and what is missing or unreadable but may be provided later. None of them keeps the daemon from
// starting, for example after a reboot; `monopod config` reports them.
func (c *Loaded) ProviderFaults() (wrong Problems, later []string) {
	wrong, later = c.providerFaults()
	auth := &c.Authentication
	for _, f := range []struct {
		key, file, hint string
		check           func(string) error
	}{
		{"authentication.tokenFile", auth.TokenFile, "a token can be made with: openssl rand -hex 16", secure.CheckTokenFile},
		{"apiServer.tokenFile", c.APIServer.TokenFile, "a token can be made with: openssl rand -hex 16", secure.CheckTokenFile},
		{"authentication.x509.clientCAFile", auth.X509.ClientCAFile, "write the certificates of the authorities into it, in PEM", secure.CheckAuthorities},
	} {
		if f.file == "" {
			continue
		}
		check := &configCheck{sources: c.Sources}
		switch err := f.check(f.file); {
		case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist): // another user may read it, or it comes later
			later = append(later, f.key+": "+printer.OneLine(err.Error()))
		case err != nil:
			check.add(f.key, printer.OneLine(err.Error()), f.hint)
		}
		wrong = append(wrong, check.problems...)
	}
	return wrong, later
}

// providerFaults returns the problems of the configuration of credential provider plug-ins.
func (c *Loaded) providerFaults() (wrong Problems, later []string) {
	if c.ImageCredentialProviderConfig == "" {
		return nil, nil
	}
	mistake, missing := registry.CheckProviders(c.ImageCredentialProviderConfig, c.ImageCredentialProviderBinDir)
	if missing != nil {
		later = printer.ErrorLines(missing)
	}
	if errors.Is(mistake, fs.ErrPermission) { // another user may read it
		return nil, append(later, printer.OneLine(mistake.Error()))
	}
	check := &configCheck{sources: c.Sources}
	if mistake != nil {
		check.add("imageCredentialProviderConfig", mistake.Error(), "until it is corrected, images are pulled without its plug-ins")
	}
	return check.problems, later
}

// ProviderWarnings returns the same faults as log lines of a running daemon.
func (c *Loaded) ProviderWarnings() []string {
	wrong, all := c.ProviderFaults()
	for _, p := range wrong {
		all = append(all, printer.OneLine(p.Error()))
	}
	return all
}

// RegistryAccess returns how registries are reached.
func (c *Config) RegistryAccess(log *slog.Logger) registry.Access {
	return registry.Access{
		AuthFile: c.RegistryConfig, HostsDirs: c.RegistryHostsDirs,
		Providers: registry.NewProviders(c.ImageCredentialProviderConfig, c.ImageCredentialProviderBinDir, log),
	}
}

// PullLimits returns the limits of concurrent pulls.
func (c *Config) PullLimits() registry.Limits {
	l := registry.Limits{Parallel: c.MaxParallelImagePulls, QPS: float64(c.RegistryPullQPS), Burst: c.RegistryBurst}
	if c.SerializeImagePulls {
		l.Parallel = 1
	}
	if q, err := quantity.Parse(c.ImagePullBandwidth); err == nil {
		l.Bandwidth = q.Value()
	}
	return l
}

// GarbagePolicy returns when unused images are removed.
func (c *Config) GarbagePolicy() gc.Policy {
	return gc.Policy{High: c.ImageGCHighThresholdPercent, Low: c.ImageGCLowThresholdPercent, MinAge: c.ImageMinimumGCAge, MaxAge: c.ImageMaximumGCAge}
}
