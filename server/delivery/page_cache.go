package delivery

// maxCachedPages is how many bytes of pages a hub keeps.
const maxCachedPages = 4 << 20

// cachedPage is a page of a name's snapshot, encoded but for the stream's id and the index. It is
// good for any stream until the next delta of the name is sent: that has all changes since the page
// was read, and goes to the stream too.
type cachedPage struct {
	rest  []byte
	index uint64 // at which it was read
	next  []byte // cursor of the page behind it
	last  bool
	items bool // it has something of the name
	room  int  // for which it was made
}

// pageCache has the pages of one hub, by the name that has them.
type pageCache struct {
	least int // bytes of a page that is kept
	names map[*watchedName]struct{}
	bytes int
}

// find finds the page of a name that begins at a cursor.
func (c *pageCache) find(w *watchedName, cursor []byte, room int) *cachedPage {
	p := w.pages[string(cursor)]
	if p == nil || p.room != room {
		return nil
	}
	return p
}

// keep keeps a page of a name.
func (c *pageCache) keep(w *watchedName, cursor []byte, p *cachedPage) {
	size := len(p.rest)
	if size < c.least || size > maxCachedPages {
		return
	}
	if c.bytes+size > maxCachedPages {
		c.dropAll()
	}
	if old := w.pages[string(cursor)]; old != nil {
		c.bytes -= len(old.rest)
	}
	if len(w.pages) == 0 {
		w.pages = make(map[string]*cachedPage)
		c.names[w] = struct{}{}
	}
	w.pages[string(cursor)] = p
	c.bytes += size
}

// drop forgets the pages of a name.
func (c *pageCache) drop(w *watchedName) {
	if w == nil || len(w.pages) == 0 {
		return
	}
	for _, p := range w.pages {
		c.bytes -= len(p.rest)
	}
	w.pages = nil
	delete(c.names, w)
}

func (c *pageCache) dropAll() {
	for w := range c.names {
		c.drop(w)
	}
}
