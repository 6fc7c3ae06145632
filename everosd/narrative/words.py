"""Words of several languages that a reader has to know: numbers, months, weekdays, and what says nothing by itself.

English, German, French, Spanish, Italian, Portuguese, Dutch and Russian by words; Chinese and Japanese by characters. All are
folded (`index.token.folded`-like: lower case, no accents) as `fold` returns them.
"""

# ruff: noqa: RUF001  # signs of other scripts are meant

from __future__ import annotations

import re
import unicodedata


def fold(word: str) -> str:
    """Return a word in lower case without accents, so that `Février` and `fevrier` are one."""
    lower = word.replace("’", "'").casefold()
    if lower.isascii():
        return lower
    return "".join(char for char in unicodedata.normalize("NFKD", lower) if not unicodedata.combining(char))


def _set(text: str) -> frozenset[str]:
    return frozenset(fold(word) for word in text.split())


def _numbered(*lines: str, start: int) -> dict[str, int]:
    """Return word → number: each line is one language's, counted from `start`; `/` parts several words for one."""
    found: dict[str, int] = {}
    for line in lines:
        for number, words in enumerate(line.split(), start):
            found.update(dict.fromkeys(map(fold, words.split("/")), number))
    return found


MONTHS = _numbered(
    "january/jan february/feb march april/apr may june/jun july/jul august/aug september/sep/sept october/oct november/nov december/dec",
    "januar/jänner februar märz april mai juni juli august september oktober/okt november dezember/dez",
    "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "enero febrero marzo abril mayo junio julio agosto septiembre/setiembre octubre noviembre diciembre",
    "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
    "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
    "januari februari maart april mei juni juli augustus september oktober november december",
    "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
    "январе феврале марте апреле мае июне июле августе сентябре октябре ноябре декабре",
    start=1,
)
"""Month by name."""

VAGUE_MONTHS = _set("may march mars mai mei marzo marco mayo jan jun sep dec nov aug set ago mar dez okt маи мае марта")
"""Names that are other words as well: a month only beside a number, or after a word that leads to a month."""

LEADS_TO_MONTH = _set(
    "in im en em nel since until till by last next this early mid late of seit bis ende anfang mitte depuis fin debut desde в с"
)

WEEKDAYS = _numbered(
    "monday/mondays tuesday/tuesdays wednesday/wednesdays thursday/thursdays friday/fridays saturday/saturdays sunday/sundays",
    "montag/montags dienstag/dienstags mittwoch/mittwochs donnerstag/donnerstags freitag/freitags samstag/samstags/sonnabend sonntag/sonntags",
    "lundi mardi mercredi jeudi vendredi samedi dimanche",
    "lunes martes miércoles jueves viernes sábado domingo",
    "lunedì martedì mercoledì giovedì venerdì sabato domenica",
    "segunda-feira terça-feira quarta-feira quinta-feira sexta-feira sábado domingo",
    "maandag dinsdag woensdag donderdag vrijdag zaterdag zondag",
    "понедельник вторник среда/среду четверг пятница/пятницу суббота/субботу воскресенье",
    "月曜/月曜日 火曜/火曜日 水曜/水曜日 木曜/木曜日 金曜/金曜日 土曜/土曜日 日曜/日曜日",
    "星期一/周一/礼拜一 星期二/周二/礼拜二 星期三/周三/礼拜三 星期四/周四/礼拜四 星期五/周五/礼拜五 星期六/周六/礼拜六 星期日/星期天/周日",
    start=0,
)
"""Weekday by name, Monday 0."""

_UNITS = _numbered(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen",
    "null eins zwei/zwo drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn",
    "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize dix-sept dix-huit dix-neuf",
    "cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciséis diecisiete dieciocho diecinueve",
    "zero uno due tre quattro cinque sei sette otto nove dieci undici dodici tredici quattordici quindici sedici diciassette diciotto diciannove",
    "zero um dois/duas três quatro cinco seis sete oito nove dez onze doze treze catorze/quatorze quinze dezasseis/dezesseis dezassete/dezessete dezoito dezanove/dezenove",
    "nul een twee drie vier vijf zes zeven acht negen tien elf twaalf dertien veertien vijftien zestien zeventien achttien negentien",
    "ноль один два/две/двое/двух три/трое/трех четыре/четырех пять шесть семь восемь девять десять одиннадцать двенадцать",
    start=0,
)  # fmt: skip
_TENS = _numbered(
    "twenty thirty forty/fourty fifty sixty seventy eighty ninety",
    "zwanzig dreißig/dreissig vierzig fünfzig sechzig siebzig achtzig neunzig",
    "vingt trente quarante cinquante soixante soixante-dix quatre-vingt/quatre-vingts quatre-vingt-dix",
    "veinte treinta cuarenta cincuenta sesenta setenta ochenta noventa",
    "venti trenta quaranta cinquanta sessanta settanta ottanta novanta",
    "vinte trinta quarenta cinquenta sessenta setenta oitenta noventa",
    "twintig dertig veertig vijftig zestig zeventig tachtig negentig",
    "двадцать тридцать сорок пятьдесят шестьдесят семьдесят восемьдесят девяносто",
    start=2,
)
_ORDINALS = _numbered(
    "third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth",
    "dritte/dritten/dritter vierte/vierten fünfte/fünften sechste/sechsten siebte/siebten achte/achten neunte/neunten zehnte/zehnten elfte/elften zwölfte/zwölften",
    "troisième quatrième cinquième sixième septième huitième neuvième dixième onzième douzième",
    "tercero/tercera/tercer cuarto/cuarta quinto/quinta sexto/sexta séptimo/séptima octavo/octava noveno/novena décimo/décima",
    "terzo/terza quarto/quarta quinto/quinta sesto/sesta settimo/settima ottavo/ottava nono/nona decimo/decima",
    start=3,
)

NUMBERS = (
    _UNITS
    | {word: 10 * tens for word, tens in _TENS.items()}
    | _ORDINALS
    | {
        "twice": 2,
        "thrice": 3,
        "dozen": 12,
        "dutzend": 12,
        "douzaine": 12,
        "docena": 12,
        "dozzina": 12,
        "zweimal": 2,
        "dreimal": 3,
    }
)
"""Number by word, without those that are more often another word: `once`, `due` and `elf` in English, `sei` in German."""
for _word in ("once", "due", "elf", "sei"):
    del NUMBERS[_word]

TENS = frozenset(_TENS)
MULTIPLES = {
    **dict.fromkeys(("hundred", "hundert", "cent", "cents", "cien", "ciento", "cento", "cem", "honderd", "сто"), 100),
    **dict.fromkeys(("thousand", "tausend", "mille", "mil", "mila", "duizend", "тысяча", "тысяч"), 1000),
    **dict.fromkeys(("million", "millions", "millionen", "millon", "millones", "milione", "milioni", "milhao", "milhoes", "миллион"), 10**6),
}  # fmt: skip

HAN_DIGITS = {char: value for value, char in enumerate("〇一二三四五六七八九")} | {"零": 0, "两": 2, "兩": 2}
HAN_UNITS = {"十": 10, "百": 100, "千": 1000, "万": 10_000, "萬": 10_000}
HAN_COUNTERS = "个個只隻年月日号號岁歲次天位条條本匹张張辆輛周週小分人頭头歳回つ台件名块塊元円杯枚部家间間层層度"
"""What a number is followed by where it is one: `三` in `三明治` is none."""

# --- words without weight ----------------------------------------------------------------------------------------------

STOP = _set("""
der die das den dem des ein eine einen einem einer eines und oder aber ist sind war waren wird werden wurde wurden hat haben hatte
hatten ich du er sie es wir ihr mich dich ihn uns euch mir dir ihm ihnen mein meine meinen meinem meiner dein deine sein seine seinen
seinem seiner ihre ihren ihrem ihrer unser unsere nicht kein keine keinen auch noch schon nur sehr so wie als wenn dass weil ob zu zum
zur im in an am auf aus bei mit nach seit von vom vor über unter durch für gegen ohne um bis dann da dort hier jetzt mal ja nein doch
man sich was wer wo wann warum dieser diese dieses jeder jede alle alles etwas nichts mehr viel viele kann können konnte will wollen
wollte soll sollen muss müssen möchte darf mag beim dabei dazu damit daran darauf darüber davon
le la les un une des du de d l et ou mais est sont était étaient être a ai as ont avait avoir je tu il elle on nous vous ils elles me te
se lui leur leurs mon ma mes ton ta tes son sa ses notre nos votre vos ne pas plus aussi très que qui quoi dont où quand comme si pour
par avec sans sous sur dans en au aux ce cet cette ces cela ça y c j n m t s qu depuis vers chez entre alors donc car déjà encore bien
tout toute tous toutes fait faire peut va vais
el los las una unos unas y o u pero es son era eran ser estar está están estaba fue fueron ha han había haber he yo tú él ella nosotros
ellos ellas mi mis tu tus su sus nuestro nuestra lo le les me te se nos no sí también muy que quien cual donde cuando como si por para
con sin sobre entre hasta desde del al este esta estos estas ese esa eso esto más ya todo toda todos todas algo tiene tengo
il lo gli uno ed ma è sono era erano essere ho hai ha abbiamo hanno aveva io tu lui lei noi voi loro mio mia miei mie suo sua suoi sue
non anche molto che chi cui dove quando come se per con senza sopra tra fra fino da dal dalla dei delle degli del della dello nel nella
nei al alla ai alle questo questa questi quello quella più già tutto tutta tutti si ci ne di
os um uma uns umas mas são foi foram eu ele ela nós eles elas meu minha meus minhas seu sua seus suas não também muito quem onde quando
como se por com sem até desde do da dos das no na nos nas ao à este esta esse essa isso mais já tudo todos
het een en maar is zijn was waren worden werd heeft hebben had ik jij hij zij wij jullie hen mijn jouw haar ons onze niet geen ook nog
al alleen zeer zo als dat omdat naar van voor door tegen zonder om tot dan daar hier nu ja nee wat wie waar waarom deze dit elke alle
iets niets meer veel kan kon wil wilde
и в во не что он на я с со как а то все она так его но да ты к у же вы за бы по ее мне было вот от меня о из ему еще была были быть мы их
для это этот эта эти
""")
"""Besides `index.token.STOP_WORDS`."""

TELLING = _set("""
say says said saying tell tells told talk talks talked talking discuss discusses discussed discussing discussion discussions mention
mentions mentioned ask asks asked asking answer answers answered reply replies replied respond responds responded describe describes
described explain explains explained express expresses expressed expressing share shares shared sharing note notes noted add adds added
recall recalls recalled report reports reported state states stated suggest suggests suggested offer offers offered agree agrees agreed
confirm confirms confirmed reveal reveals revealed acknowledge acknowledges acknowledged emphasize emphasizes emphasized highlight
highlights highlighted reflect reflects reflected inform informs informed encourage encourages encouraged praise praises praised
congratulate congratulates congratulated compliment compliments complimented thank thanks thanked wish wishes wished greet greets greeted
conversation conversations chat chats chatted dialogue message messages topic topics exchange exchanges exchanged update updates updated
later then currently recently previously earlier afterwards additionally furthermore moreover however also initially finally eventually
meanwhile subsequently overall together still yet already now today day date time moment
feel feels felt feeling feelings think thinks thought believe believes believed find finds found consider considers considered want
wants wanted hope hopes hoped plan plans planned planning intend intends intended decide decides decided decision like likes liked enjoy
enjoys enjoyed enjoying love loves loved appreciate appreciates appreciated appreciation value values valued prefer prefers preferred
interest interested interests interesting excite excited excitement enthusiasm enthusiastic happy glad proud pride grateful gratitude
support supports supported supporting supportive admiration admire admires admired importance important experience experiences
experienced involve involves involved involving include includes included including various several different certain specific
something someone things thing people person others user assistant speaker participant participants friend friends one ones
make makes made making take takes took taken taking give gives gave given giving get gets got go goes went gone going come comes came
use uses used using see sees saw seen look looks looked looking have has had having do does did done doing become becomes became begin
begins began start starts started try tries tried keep keeps kept know knows knew learn learns learned need needs needed help helps
helped seem seems seemed know show shows showed continue continues continued work works worked
currently current new recent previous next last past future upcoming ago since week weeks month months year years
named called another first originally formerly
zuerst zunachst anfangs inzwischen mittlerweile hatte hatten d'abord avait avaient etait etaient desormais tenia tenian habia primero antes
aveva avevano prima all'inizio ormai tinha tinham primeiro
commend commends commended applaud applauds applauded reciprocate reciprocates reciprocated credit credits credited bid bids caught
comment comments commented emphasizing showing goodbye goodbyes vow vows vowed vowing respective mutual
regarding concerning based related due able while during towards toward upon
sagt sagte sagen erzählt erzählte fragt fragte antwortet antwortete berichtet berichtete erwähnt erwähnte erklärt erklärte spricht
sprechen sprach gespräch unterhaltung unterhalten thema meint meinte findet fand plant planen möchte mag freut gefreut außerdem später
danach zuvor derzeit aktuell heute geht ging macht machte gibt gab neue neuen neuer
dit disait raconte raconta demande demanda répond répondit explique expliqua mentionne mentionna parle parlent parlait conversation
discussion discutent discuté évoque ensuite puis également actuellement aujourd'hui pense trouve veut prévoit nouveau nouvelle
dice dijo decir cuenta contó pregunta preguntó responde respondió explica explicó menciona mencionó habla hablan habló conversación
charla tema después luego además actualmente ahora hoy piensa quiere planea nuevo nueva
dice disse racconta chiede chiese risponde rispose spiega spiegò menziona parla parlano conversazione poi inoltre attualmente oggi vuole
nuovo nuova diz contou pergunta perguntou responde respondeu explica explicou menciona fala falam conversa depois além atualmente hoje
quer novo nova
""")
"""Words with which something is told, in whatever words it was said: no source need have them."""

ABSTRACT = _set("""
desire sense way ways kind kinds sort sorts part parts bit lot number series range variety set group idea ideas plan plans goal goals
chance opportunity opportunities journey process step steps effort efforts passion dedication commitment motivation inspiration
encouragement reaction response question questions answer comment comments remark suggestion suggestions advice information detail
details story stories example fact reason reasons result results need needs wish hope hopes dream dreams challenge challenges problem
problems issue issues situation concern concerns matter life lives world place places moment moments memory memories feeling feelings
emotion emotions connection relationship bond love care joy happiness success progress growth change changes difference impact effect
influence role focus attention role purpose meaning significance value belief beliefs opinion view perspective mention intention
desire interest interests excitement enthusiasm gratitude appreciation pride admiration support conversation discussion exchange
experience experiences visit trip event events activity activities time day date week month year evening morning afternoon night future
past effort endeavor endeavors sentiment sentiments activity preference preferences struggle struggles search step progress
present account explanation description request reply update reminder note summary
""")
"""Nouns that name nothing one could own, meet or lose: they may be introduced by a text."""

STANCE = _set("""
feel feels felt think thinks thought believe believes believed want wants wanted hope hopes hoped plan plans planned planning intend
intends intended decide decides decided decision like likes liked enjoy enjoys enjoyed enjoying love loves loved appreciate appreciates
appreciated value values valued prefer prefers preferred interested excited enthusiastic happy glad proud grateful admire admires admired
agree agrees agreed need needs needed help helps helped hate hates hated dislike dislikes disliked detest detests detested loathe loathes
loathed stopped quit refuses refused declined avoids avoid möchte mag freut gefreut plant planen hasse hasst hassen hasste veut
prévoit déteste détestent quiere planea odia odian vuole odio quer odeia
""")
"""Of those that a text may bring along, or that deny: what somebody makes of something, which is a claim by itself."""

NEGATIONS = _set("""
no not never none nobody nothing neither nor without n't cannot can't don't doesn't didn't isn't aren't wasn't weren't won't wouldn't
haven't hasn't hadn't couldn't shouldn't dont doesnt didnt isnt arent cant wont nicht kein keine keinen keinem keiner nie niemals nichts
niemand ohne ne pas jamais rien aucun aucune sans no nunca nada nadie ninguno ninguna ningún sin non mai niente nessuno nessuna senza
não nunca nada ninguém nenhum nenhuma sem niet geen nooit niets niemand zonder не нет никогда ничего без
hate hates hated dislike dislikes disliked detest detests detested loathe loathes loathed hasse hasst hassen hasste deteste detestent
odio odia odian odeio odeia detesto stopped quit refuses refused lacks lacking declined cancelled canceled avoids avoid unable hardly barely
""")
PEOPLE = _set("""
people persons friends speakers participants women men colleagues users leute personen freunde freundinnen frauen kollegen amis amies
personnes femmes hommes personas amigos amigas mujeres hombres persone amici amiche donne uomini pessoas mulheres homens mensen vrienden
люди людей друга подруги
""")
OVER = re.compile(
    r"\b(?:no longer|no more|not (?=[^.,;]{1,40}\bany ?more\b)|(?:do|does|did|is|are|was|were|has|have|had)n['’]t (?=[^.,;]{1,60}\bany ?more\b)"
    r"|stopped|quit|nicht mehr|kein(?:e|en|em|er)? (?=[^.,;]{1,40}\bmehr\b)|ne (?=[^.,;]{1,40}\bplus\b)|n['’](?=[^.,;]{1,40}\bplus\b)|ya no|no (?=[^.,;]{1,40}\bmás\b)"
    r"|non (?=[^.,;]{1,40}\bpiù\b)|já não|não (?=[^.,;]{1,40}\bmais\b)|niet meer|geen (?=[^.,;]{1,40}\bmeer\b)|больше не)\b|不再|もう(?=[^。、]{1,30}ない)",
    re.IGNORECASE,
)
"""What says that something held before and holds no longer."""
PETS = _set("dog dogs puppy cat cats kitten rabbit hamster hund hunde katze katzen chien chat perro gato cane gatto")
"""What a pet may be."""
PET = _set("pet pets adopt adopted adopts haustier haustiere adoptiert animal adopté mascota mascotas adoptó")
HAN_NEGATIONS = ("不", "没", "沒", "无", "無", "未", "别", "ない", "ません", "なかっ", "ず、", "讨厌", "討厭", "嫌い")

STARTERS = _set("""
a an the this that these those there here it its he she they we you i his her their our your my who what when where why how which while
although though because since after before during until once if as at by for from in into of on onto out over per to under up upon with
within without about above across against along among around behind below beneath beside besides between beyond despite except inside
like near off outside past through throughout toward towards via and or but nor so yet both either neither each every all some any many
much most more several few another other others such no not only even just also too very however therefore moreover furthermore
additionally consequently meanwhile nevertheless nonetheless instead otherwise then thus hence later earlier soon now today tomorrow
yesterday tonight currently recently finally eventually initially originally previously overall together again always never sometimes
often usually yes no ok okay well sure thanks thank please hello hi hey oh wow great good nice sorry let did does do is are was were be
been has have had will would can could may might must shall should one two three people someone somebody everyone everybody something
everything nothing nobody friends family both due given based according regarding first second third last next new old key main note
notes summary subject content title topic topics conversation discussion dialogue chat user users assistant speaker speakers participants
mr mrs ms dr prof st lgbtq ai tv pc id am pm god internet english german french spanish italian chinese japanese
auch als am an auf aus bei beim bis da dabei dadurch dafür damit danach dann daran darauf darin darum das dass davon dazu dein dem den
denn der des deshalb die dies diese dieser dieses doch dort du durch ein eine einer eines er es etwas für gegen gestern hat heute hier
ich ihr ihre im immer in inzwischen ist ja jede jeder jetzt kein keine man mein meine mit morgen nach nachdem nein nicht noch nun nur ob
oder ohne schließlich schon sehr sein seine seit seitdem sich sie sind so sobald später über um und unser unter viel viele vom von vor
während war waren was weil wenn wer wie wir wird wo zu zudem zuerst zum zunächst zur zwei zwischen außerdem allerdings anschließend
au aux avec ce cela celle celui ces cet cette chaque comme dans de depuis des deux donc dont du elle elles en enfin ensuite entre est et
eux il ils je la le les leur leurs lors lorsque lui ma mais mes moi mon ne nos notre nous on or ou où par parce pas pendant plus plusieurs
pour pourquoi puis quand que quel quelle qui quoi sa sans ses si son sous sur ta tandis tes toi ton tous tout toute très tu un une vers
voici voilà vos votre vous y également actuellement ainsi alors après avant aujourd'hui hier demain
al algo algunos ante antes aquel aquí así aunque ayer bajo bien cada casi como con contra cual cuando de del desde después donde dos
durante el ella ellas ellos en entonces entre era es esa ese eso esta estas este esto estos está están fue ha había hace hacia han hasta
hay hoy la las le les lo los luego mañana me mi mientras muy más nada ni no nos nosotros nuestra nuestro o otra otro para pero por porque
pues que quien se según ser si sin sobre su sus sí también tanto te tiene toda todas todo todos tras tu un una uno usted y ya yo él
actualmente además
ad agli ai al alla alle allora anche ancora attualmente avere c'è che chi ci come con cosa così cui da dai dal dalla dalle degli dei del
della delle dello di domani dopo dove due durante e ed entrambi era essere fra già gli ha hanno ho i il in infine inoltre invece io ieri
l'altro la le lei lo loro lui ma mentre mi mia mio molto ne nei nel nella nelle no noi non nostro o oggi ogni per perché però più poi
prima qual quale quando quanto quella quello questa queste questi questo qui quindi se sei si sia siamo solo sono sopra sotto sta su sua
sue sul sulla suo te tra tu tutti tutto un una uno vi voi è
a agora ainda além amanhã ao aos apesar aqui as assim até atualmente cada com como da das de dela dele depois desde do dois dos durante e
ela elas ele eles em enquanto então entre era essa esse esta este eu foi hoje isso já lhe mais mas me mesmo meu minha muito na nas nem no
nos nós não o onde ontem os ou para pela pelo por porque quando que quem se sem ser seu seus sobre sua suas são também tem ter todos tudo
um uma você à é
de het een en maar of want dus ik jij hij zij wij jullie er dit dat deze die hier daar nu toen later daarna ook niet geen in op aan met
voor van naar bij over onder door na tot sinds tijdens volgens vandaag gisteren morgen
и а но да нет он она они мы вы я это этот эта в во на с со по за из от до для при о об у к когда потом затем также сегодня вчера завтра
после до если как что где кто
""")
"""Words that begin a sentence, or stand large for another reason, without being a name."""

COMMON_ENDINGS = (
    "ing", "ed", "ly", "tion", "tions", "sion", "ment", "ments", "ness", "ity", "ities", "ship", "ships", "ful", "less",
    "ous", "ive", "able", "ible", "ism", "ance", "ence",
    "ung", "ungen", "heit", "heiten", "keit", "keiten", "schaft", "schaften", "tum", "nisse",
    "mente", "ción", "ciones", "zione", "zioni", "ção", "ções", "dade", "dades", "tà", "ement",
)  # fmt: skip
"""A word that ends so is no name."""

ENDINGS = _set("e t s n a o i y st en es er te as os an em et ed") | {""}
"""What forms of a short word may differ by."""

GERMAN = _set(
    "der die das und ist nicht ein eine einen einem einer mit den dem des von zu zur zum auf für sie er ihr ihre ihrem ihren seine"
    " seinem seinen im auch sich hat hatte war als wie noch nach bei aus über wir ich haben wird"
)
"""Their share says whether a text is German, where every noun is written large."""

LEADS_TO_NOUN = frozenset(
    stem + ending
    for stem in _set(
        "d ein kein mein dein sein ihr unser eur dies jed jen welch all viel einig manch solch beid mehrer"
    )
    for ending in ("", "er", "ie", "as", "es", "e", "en", "em")
) | _set("im am zum zur vom beim ins ans aufs furs ums euer mehr etwas wenig")
"""After these a German word written large is a noun rather than a name."""

IRREGULAR = {
    past: base
    for base, pasts in {
        "buy": "bought", "go": "went gone", "give": "gave given", "get": "got gotten", "tell": "told", "say": "said", "see": "saw seen",
        "take": "took taken", "make": "made", "have": "had has", "find": "found", "think": "thought", "bring": "brought", "teach": "taught",
        "catch": "caught", "fight": "fought", "sell": "sold", "hold": "held", "feel": "felt", "keep": "kept", "leave": "left",
        "meet": "met", "lose": "lost", "send": "sent", "spend": "spent", "build": "built", "lend": "lent", "win": "won", "sit": "sat",
        "stand": "stood", "understand": "understood", "begin": "began begun", "drink": "drank drunk", "sing": "sang sung", "swim": "swam swum",
        "run": "ran", "ride": "rode ridden", "drive": "drove driven", "write": "wrote written", "speak": "spoke spoken",
        "break": "broke broken", "choose": "chose chosen", "wake": "woke woken", "wear": "wore worn", "grow": "grew grown",
        "know": "knew known", "throw": "threw thrown", "fly": "flew flown", "draw": "drew drawn", "eat": "ate eaten", "fall": "fell fallen",
        "hear": "heard", "read": "read", "lead": "led", "pay": "paid", "sleep": "slept", "teeth": "tooth", "child": "children kids kid",
        "person": "people", "man": "men", "woman": "women", "foot": "feet", "mouse": "mice", "wife": "wives", "life": "lives",
        "mother": "mom mum mama", "father": "dad papa", "marry": "married marriage wedding", "die": "died dead death", "bear": "born birth",
        "photo": "picture pic photograph", "phone": "telephone", "bike": "bicycle", "movie": "film", "begin ": "start",
    }.items()
    for past in pasts.split()
}  # fmt: skip
"""Forms that no stem brings together, and a few words that people use for one another."""
