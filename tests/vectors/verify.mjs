// Proves seals.json and envelopes.json from docs/formats.md alone, with nothing but what Node brings along.
//
//   node verify.mjs [verify [FILE…]]   makes, opens and refuses every vector; prints what is wrong, ends with 1 if anything is
//   node verify.mjs make               seals what envelopes.json has with new salts and IVs; prints the envelopes

import { createCipheriv, createDecipheriv, createHash, createHmac, hkdfSync, randomBytes, timingSafeEqual } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { isDeepStrictEqual } from 'node:util'

const COMMITTING = 'underseal/aes-256-gcm-hkdf'
const PLAIN = 'loom/aes-256-gcm'
const MEMBERS = {
  [COMMITTING]: ['__loomEnc', 'v', 'kid', 'fmt', 'org', 'salt', 'iv', 'kc', 'ct'],
  [PLAIN]: ['__loomEnc', 'v', 'kid', 'fmt', 'org', 'aad', 'iv', 'ct'],
}
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
const TEXT = /^[^]+$/
const POINTER = /^(\/([^~/]|~[01])*)+$/
const FORMATS = {
  'held-payload-v1': { purpose: 'payload', origin: 0, ciphers: [COMMITTING], place: [UUID], most: 2 ** 20 },
  'held-decision-v1': { purpose: 'decision', origin: 0, ciphers: [COMMITTING], place: [UUID, TEXT], most: 2 ** 20 },
  'loom-snap-v1': { ciphers: [COMMITTING, PLAIN], place: [TEXT, /^(0|[1-9][0-9]*)$/], most: 2 ** 26 },
  'loom-field-v1': {
    purpose: 'subject', origin: 1, ciphers: [COMMITTING, PLAIN], most: 2 ** 20, unbound: true,
    place: [TEXT, TEXT, /^[A-Z][A-Z0-9_]{0,63}$/, /^\[[^]*\]$/, POINTER],
  },
  'loom-message-v1': {
    purpose: 'subject', origin: 1, ciphers: [COMMITTING, PLAIN], most: 2 ** 20, unbound: true,
    place: [TEXT, TEXT, /^[0-9a-f]{64}$/, /^\/payload(\/([^~/]|~[01])*)*$/],
  },
}

const sha256 = (data) => createHash('sha256').update(data).digest()
const hex = (text) => Buffer.from(text, 'hex')

// ---- envelopes ----

function bytes(text, least, most) {
  const data = Buffer.from(text, 'base64url')
  return data.toString('base64url') === text && data.length >= least && data.length <= most ? data : null
}

function placeFits(form, place, origin) {
  return place.length === form.place.length && place.every((one, at) => form.place[at].test(one)) && origin !== '' &&
    (form.origin === undefined || place[form.origin] === origin)
}

function associated(envelope, purpose, place) {
  if (envelope.__loomEnc === PLAIN) {
    return FORMATS[envelope.fmt].unbound ? '' : ['loom-snap-v1', ...place].join('|')
  }
  // JSON.stringify writes strings as RFC 8785 does; the names are in its order
  const { __loomEnc, fmt, kid, org } = envelope
  return JSON.stringify({ __loomEnc, fmt, kid, org, place, purpose, v: 1 })
}

function derive(secret, salt, covered) {
  const okm = Buffer.from(hkdfSync('sha512', secret, salt, sha256(covered), 64))
  return [okm.subarray(0, 32), okm.subarray(32)]
}

function make(plaintext, key, cipher, fmt, place, origin, salt, iv) {
  const envelope = { __loomEnc: cipher, v: 1, kid: key.id, fmt, org: origin }
  const covered = Buffer.from(associated(envelope, key.purpose, place))
  let secret = hex(key.secret)
  if (cipher === COMMITTING) {
    const [aes, commitment] = derive(secret, salt, covered)
    secret = aes
    Object.assign(envelope, { salt: salt.toString('base64url'), kc: commitment.toString('base64url') })
  } else if (!FORMATS[fmt].unbound) {
    envelope.aad = fmt
  }
  const gcm = createCipheriv('aes-256-gcm', secret, iv).setAAD(covered)
  const ciphertext = Buffer.concat([gcm.update(plaintext), gcm.final(), gcm.getAuthTag()])
  return Object.assign(envelope, { iv: iv.toString('base64url'), ct: ciphertext.toString('base64url') })
}

/** Gives { plaintext } or { reason }. */
function open(envelope, keys, { purpose, fmt, place, openLegacy }) {
  if (envelope === null || typeof envelope !== 'object' || typeof envelope.__loomEnc !== 'string') return { reason: 'malformed' }
  const cipher = envelope.__loomEnc
  if (!Object.hasOwn(MEMBERS, cipher) || envelope.v !== 1) return { reason: 'unsupported' }
  const form = FORMATS[fmt]
  const expected = MEMBERS[cipher].filter((name) => name !== 'aad' || !form?.unbound)
  const here = Object.keys(envelope)
  if (here.length !== expected.length || !expected.every((name) => here.includes(name)) ||
    !here.every((name) => name === 'v' || typeof envelope[name] === 'string') || !/^[!-~]{1,128}$/.test(envelope.kid)) {
    return { reason: 'malformed' }
  }
  if (!form || !form.ciphers.includes(cipher) || (form.purpose ?? purpose) !== purpose || purpose === 'fingerprint') {
    return { reason: 'unsupported' }
  }
  if (cipher === PLAIN && form.unbound && !openLegacy) return { reason: 'unsupported' }
  if (envelope.fmt !== fmt || (envelope.aad ?? fmt) !== fmt || !placeFits(form, place, envelope.org)) return { reason: 'does-not-open' }
  const sizes = { salt: [32, 32], iv: [12, 12], kc: [32, 32], ct: [16, form.most + 16] }
  const part = {}
  for (const [name, [least, most]] of Object.entries(sizes)) {
    if (!expected.includes(name)) continue
    part[name] = bytes(envelope[name], least, most)
    if (part[name] === null) return { reason: 'malformed' }
  }
  const key = keys.find((one) => one.id === envelope.kid)
  if (!key) return { reason: 'key-unavailable' }
  if (key.purpose !== purpose) return { reason: 'does-not-open' }
  const covered = Buffer.from(associated(envelope, purpose, place))
  let secret = hex(key.secret)
  if (cipher === COMMITTING) {
    const [aes, commitment] = derive(secret, part.salt, covered)
    if (!timingSafeEqual(commitment, part.kc)) return { reason: 'does-not-open' }
    secret = aes
  }
  try {
    const gcm = createDecipheriv('aes-256-gcm', secret, part.iv).setAAD(covered).setAuthTag(part.ct.subarray(-16))
    return { plaintext: Buffer.concat([gcm.update(part.ct.subarray(0, -16)), gcm.final()]).toString() }
  } catch {
    return { reason: 'does-not-open' }
  }
}

// ---- events ----

const tokens = (pointer) => pointer.slice(1).split('/').map((one) => one.replaceAll('~1', '/').replaceAll('~0', '~'))
const pointerOf = (path) => path.map((one) => '/' + one.replaceAll('~', '~0').replaceAll('/', '~1')).join('')
const dottedOf = (path) => path.map((one) => one.replaceAll('\\', '\\\\').replaceAll('.', '\\.')).join('.')
const undotted = (text) => {
  const path = ['']
  for (let at = 0; at < text.length; at++) {
    if (text[at] === '.') path.push('')
    else path[path.length - 1] += text[at] === '\\' ? text[++at] : text[at]
  }
  return path
}
const look = (value, path) => path.reduce((inner, one) => inner?.[one], value)
function put(value, path, last) {
  if (path.length === 0) return last
  const copy = Array.isArray(value) ? [...value] : { ...value }
  copy[path[0]] = put(copy[path[0]], path.slice(1), last)
  return copy
}

const chainOf = (id) => id.split('~')[0]
const lineOf = (id) => id.slice(chainOf(id).length + 1).replace(/(^|[.])[0-9]+$/, '')
const inboxOf = (id) => (lineOf(id) === '' ? chainOf(id) : `${chainOf(id)}~${lineOf(id)}`)

/** The execution whose event this number is: a fork's prefix is its origin's. */
function mayCome(event, origin) {
  let owner = event.execution_id
  for (const [ancestor, through] of event.forked_from) {
    if (event.seq > through) break
    owner = ancestor
  }
  return origin === owner
}

/** Format and place of an envelope in an event; null where it cannot have come there. */
function slotOf(event, path, origin) {
  const { type, data, subject } = event
  const members = [event.execution_id, ...event.forked_from.map(([id]) => id)]
  if (type !== 'MESSAGE_CONSUMED') {
    const key = JSON.stringify(event.key_members.map((one) => look(data, tokens(one))))
    return mayCome(event, origin) ? { fmt: 'loom-field-v1', place: [subject, origin, type, key, pointerOf(path)] } : null
  }
  if (data.topic.startsWith('$child/')) {
    const ended = { completed: 'EXECUTION_COMPLETED', failed: 'EXECUTION_FAILED' }[data.payload.status]
    const ours = origin === data.sender && members.map(chainOf).includes(chainOf(origin)) && lineOf(origin) === data.topic.slice(7)
    return ours ? { fmt: 'loom-field-v1', place: [subject, origin, ended, '[]', pointerOf(path.slice(1))] } : null
  }
  if (!members.map(inboxOf).includes(origin)) return null
  return { fmt: 'loom-message-v1', place: [subject, origin, data.key, pointerOf(path)] }
}

/** Gives { data } or { reason }. */
function openEvent(event, keys) {
  let data = event.data
  for (const cover of event.marker.covers) {
    const path = undotted(cover.slice(event.type.length + 1))
    const envelope = look(event.data, path)
    if (envelope?.__loomEnc !== event.marker.cipher) return { reason: 'malformed' }
    const slot = slotOf(event, path, envelope.org)
    if (slot === null) return { reason: 'does-not-open' }
    const opened = open(envelope, keys, { purpose: 'subject', ...slot })
    if (opened.reason) return opened
    data = put(data, path, JSON.parse(opened.plaintext))
  }
  return { data }
}

function opens(marker, capability) {
  if (marker === null) return true
  const list = (value) => (Array.isArray(value) ? value : [])
  return isDeepStrictEqual(Object.keys(marker).sort(), ['cipher', 'covers', 'v']) && marker.v === 1 &&
    typeof marker.cipher === 'string' && list(capability?.ciphers).includes(marker.cipher) &&
    list(marker.covers).length > 0 &&
    marker.covers.every((one) => typeof one === 'string' && list(capability?.covers).includes(one))
}

// ---- the vectors ----

function fingerprint(key, one) {
  const part = (text) => {
    const data = Buffer.from(text)
    const length = Buffer.alloc(8)
    length.writeBigUInt64BE(BigInt(data.length))
    return Buffer.concat([length, data])
  }
  const parts = ['underseal-fingerprint-v1', one.requester, one.type, String(one.version), one.canonical]
  return createHmac('sha256', hex(key.secret)).update(Buffer.concat(parts.map(part))).digest('hex')
}

const CHECKS = {
  seals(one, keys) {
    const key = keys.find((k) => k.id === one.key)
    const envelope = make(Buffer.from(one.plaintext), key, one.envelope.__loomEnc, one.fmt, one.place, one.origin, hex(one.salt ?? ''), hex(one.iv))
    const opened = open(one.envelope, keys, { purpose: key.purpose, fmt: one.fmt, place: one.place, openLegacy: true })
    return associated(envelope, key.purpose, one.place) === one.associated_data && isDeepStrictEqual(envelope, one.envelope) &&
      opened.plaintext === one.plaintext
  },
  refused: (one, keys) => open(one.envelope, keys, { ...one, openLegacy: one.open_legacy }).reason === one.reason,
  fingerprints: (one, keys) => fingerprint(keys.find((k) => k.id === one.key), one) === one.fingerprint,
  events: (one, keys) => isDeepStrictEqual(openEvent(one, keys).data, one.opened) && one.pointers.every((p) =>
    one.marker.covers.includes(`${one.type}.${dottedOf(tokens(p))}`)),
  moved: (one, keys) => openEvent(one, keys).reason === 'does-not-open',
  paths: (one) => dottedOf(tokens(one.pointer)) === one.dotted && pointerOf(undotted(one.dotted)) === one.pointer,
  markers: (one) => opens(one.marker, one.capability) === one.opens,
}

function verify(files) {
  let wrong = 0
  for (const file of files) {
    const vectors = JSON.parse(readFileSync(file, 'utf8'))
    for (const [part, check] of Object.entries(CHECKS)) {
      for (const [at, one] of (vectors[part] ?? []).entries()) {
        if (!check(one, vectors.keys)) {
          wrong++
          console.log(`wrong in ${part}: ${one.name ?? at}`)
        }
      }
      if (vectors[part]) console.log(`${String(file).split('/').at(-1)} ${part} ${vectors[part].length}`)
    }
  }
  return wrong
}

const beside = (name) => new URL(name, import.meta.url)
const [what = 'verify', ...files] = process.argv.slice(2)
if (what === 'make') {
  const { seals, keys } = JSON.parse(readFileSync(beside('envelopes.json'), 'utf8'))
  const made = seals.map((one) => make(Buffer.from(one.plaintext), keys.find((k) => k.id === one.key), one.envelope.__loomEnc,
    one.fmt, one.place, one.origin, randomBytes(32), randomBytes(12)))
  console.log(JSON.stringify(made))
} else {
  process.exitCode = verify(files.length > 0 ? files : [beside('seals.json'), beside('envelopes.json')]) === 0 ? 0 : 1
}
