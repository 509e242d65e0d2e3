package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/trimtab/trimtab/tuner/account"
	"github.com/trimtab/trimtab/tuner/httpd"
)

//trimtab:table the page's own files, as the compiler read them
//go:embed assets
var assets embed.FS

// file is one embedded file, compressed once.
type file struct {
	contentType, tag string
	plain, zipped    []byte
}

// files answers with embedded files; "/" is index.html.
type files map[string]file

func newFiles() files {
	out := files{"/terms.js": newFile(".js", terms())}
	names, _ := fs.Glob(assets, "assets/*") // fails for a bad pattern alone
	for _, name := range names {
		content, _ := assets.ReadFile(name) // it is there
		at := strings.TrimPrefix(name, "assets")
		if at == "/index.html" {
			at = "/"
		}
		out[at] = newFile(path.Ext(name), content)
	}
	return out
}

func newFile(kind string, content []byte) file {
	types := map[string]string{ // the host's tables differ
		".js": "text/javascript; charset=utf-8", ".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
	}
	sum := sha256.Sum256(content)
	return file{types[kind], fmt.Sprintf("%q", fmt.Sprintf("%x", sum[:12])), content, httpd.Zip(gzip.BestCompression, func(to io.Writer) { _, _ = to.Write(content) })}
}

// terms is the module that says what a report's columns mean, in the words of `trimtab report`.
func terms() []byte {
	columns, _ := json.Marshal(account.Columns()) // texts alone always can
	above, _ := json.Marshal(account.AboveColumns())
	return fmt.Appendf(nil, "export const terms = %s;\nexport const above = %s;\n", columns, above)
}

func (f files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	one, ok := f[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", one.contentType)
	sendZipped(w, r, http.StatusOK, one.tag, one.zipped, func() ([]byte, error) { return one.plain, nil })
}

// answerLevel has a list of 1,000 containers in a third of the time that the default level takes,
// an eighth larger.
const answerLevel = 2

// unzip is what httpd.Zip compressed.
func unzip(zipped []byte) []byte {
	z, _ := gzip.NewReader(bytes.NewReader(zipped))
	plain, _ := io.ReadAll(z)
	return plain
}

// sendZipped answers from compressed bytes: as they are, with what plain gives for who takes
// no gzip, or with 304 for who has them.
func sendZipped(w http.ResponseWriter, r *http.Request, status int, tag string, zipped []byte, plain func() ([]byte, error)) {
	h := w.Header()
	h.Set("Cache-Control", "private, no-cache") // kept, and asked for again each time
	h.Set("Vary", "Accept-Encoding")
	if status == http.StatusOK {
		h.Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	body := zipped
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
	} else {
		var err error
		if body, err = plain(); err != nil {
			h.Del("ETag")
			busy(w)
			return
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a viewer that went away needs no answer
}
